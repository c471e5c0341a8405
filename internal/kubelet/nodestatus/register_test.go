package nodestatus

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/nodeaddress"
)

// TestCreatesNode holds what a Node that we create has of what the node was told.
func TestCreatesNode(t *testing.T) {
	ours := v1.Taint{Key: "ours", Effect: v1.TaintEffectNoSchedule}
	tests := []struct {
		name   string
		reg    Registration
		taints []v1.Taint
	}{
		{"nothing", Registration{}, nil},
		{"taints", Registration{Taints: []v1.Taint{ours}, ProviderID: "kind://a/b"}, []v1.Taint{ours}},
		{"a cloud", Registration{Taints: []v1.Taint{ours}, ExternalCloud: true}, []v1.Taint{
			ours, {Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: v1.TaintEffectNoSchedule},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newRig()
				tt.reg.Labels = map[string]string{"site": "a", "kubernetes.io/arch": "other"}
				rig.cfg.Registration, rig.cfg.Features = tt.reg, []string{"A", "B"}
				rig.cfg.Hostname = "host"
				reporter := rig.start(t)
				<-reporter.Registered()
				node := rig.api.current()
				if diff := cmp.Diff(node.Spec.Taints, tt.taints); diff != "" {
					t.Errorf("taints (-got +want):\n%s", diff)
				}
				for key, want := range map[string]string{"site": "a", "kubernetes.io/hostname": "host", "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"} {
					if node.Labels[key] != want {
						t.Errorf("label %s is %q, want %q", key, node.Labels[key], want)
					}
				}
				if node.Spec.ProviderID != tt.reg.ProviderID || !slices.Equal(node.Status.DeclaredFeatures, []string{"A", "B"}) {
					t.Errorf("provider %q, features %v", node.Spec.ProviderID, node.Status.DeclaredFeatures)
				}
			})
		})
	}
}

// TestReconciles holds what of a Node that exists is put right, and what is left.
func TestReconciles(t *testing.T) {
	const provided = nodeaddress.ProvidedAnnotation
	tests := []struct {
		name              string
		labels, wanted    map[string]string // wanted: of the node afterwards, in part; empty: absent
		annotations, left map[string]string
	}{
		{
			name:   "labels of the machine",
			labels: map[string]string{"kubernetes.io/hostname": "wrong", "beta.kubernetes.io/arch": "wrong"},
			wanted: map[string]string{"kubernetes.io/hostname": "n1", "beta.kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "z"},
		},
		{
			name:   "no others, and nobody else's go",
			labels: map[string]string{"site": "b", "node-role.kubernetes.io/worker": ""},
			wanted: map[string]string{"site": "b", "rack": ""},
		},
		{
			name:        "an address that it is not told any more",
			annotations: map[string]string{provided: "10.0.0.9", "theirs": "x"},
			left:        map[string]string{provided: "", "theirs": "x", attachedByController: "true"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newRig()
				rig.cfg.Registration.Labels = map[string]string{"site": "a", "rack": "7", "topology.kubernetes.io/zone": "z"}
				rig.api.node = &v1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "old", Labels: tt.labels, Annotations: tt.annotations},
					Spec:       v1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24", "fd01::/64"}, ProviderID: "theirs://x"},
				}
				reporter := rig.start(t)
				<-reporter.Ready()
				node := rig.api.current()
				for key, want := range tt.wanted {
					if node.Labels[key] != want {
						t.Errorf("label %s is %q, want %q", key, node.Labels[key], want)
					}
				}
				for key, want := range tt.left {
					if node.Annotations[key] != want {
						t.Errorf("annotation %s is %q, want %q", key, node.Annotations[key], want)
					}
				}
				if node.Spec.PodCIDR != "10.1.0.0/24" || node.Spec.ProviderID != "theirs://x" {
					t.Errorf("spec %+v", node.Spec)
				}
				if got := rig.runtime.told(); !slices.Equal(got, []string{"10.1.0.0/24,fd01::/64"}) {
					t.Errorf("the runtime was told the networks %q", got)
				}
				// What the node needs comes back while it runs; the rest is others'.
				rig.api.set(func() { rig.api.node.Labels = map[string]string{"kubernetes.io/os": "plan9"} })
				after(15 * time.Second)
				if labels := rig.api.current().Labels; labels["kubernetes.io/os"] != "linux" || labels["kubernetes.io/arch"] == "" || labels["site"] != "" {
					t.Errorf("labels after somebody else's change: %v", labels)
				}
			})
		})
	}
}

// TestCloudAddresses holds that a cloud's addresses stay, and that pods have them.
func TestCloudAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		rig.cfg.Addresses = nodeaddress.New(nodeaddress.Config{Node: "n1", Hostname: "n1", ExternalCloud: true})
		reporter := rig.start(t)
		<-reporter.Ready()
		if got := rig.api.current().Status.Addresses; len(got) != 1 || got[0].Type != v1.NodeHostName || reporter.HostIPs() != nil {
			t.Errorf("before the cloud: %v, pods %v", got, reporter.HostIPs())
		}
		cloud := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.5.0.1"}, {Type: v1.NodeExternalIP, Address: "192.0.2.5"}}
		rig.api.set(func() { rig.api.node.Status.Addresses = cloud })
		after(time.Minute)
		if diff := cmp.Diff(rig.api.current().Status.Addresses, cloud); diff != "" || !slices.Equal(reporter.HostIPs(), []string{"10.5.0.1"}) {
			t.Errorf("pods %v (-got +want):\n%s", reporter.HostIPs(), diff)
		}
	})
}

// TestAddressesUnknown holds that all else is reported while no address is found.
func TestAddressesUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		rig.cfg.Addresses = nodeaddress.New(nodeaddress.Config{Node: "n1", Hostname: "n1", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.77")}})
		rig.api.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.3"}}}}
		reporter := rig.start(t)
		<-reporter.Ready()
		if got := rig.api.current().Status.Addresses; len(got) != 1 || got[0].Address != "10.0.0.3" {
			t.Errorf("addresses %v, want those that were there", got)
		}
	})
}

// TestNeverRegisters holds that a Node is waited for that somebody else makes, and that
// its status and lease are kept then.
func TestNeverRegisters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		rig.cfg.Registration.Never = true
		reporter := rig.start(t)
		after(time.Minute)
		if rig.api.current() != nil || rig.api.count("create node") != 0 || rig.api.count("create lease") != 0 {
			t.Fatal("it registered")
		}
		rig.api.set(func() { rig.api.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "theirs"}} })
		<-reporter.Ready()
		after(time.Second)
		if node := rig.api.current(); len(node.Labels) != 0 || len(node.Annotations) != 0 || !isReady(node) {
			t.Errorf("node %+v", node)
		}
		if rig.api.count("create lease") != 1 {
			t.Error("no lease")
		}
		rig.api.set(func() { rig.api.node = nil })
		after(time.Minute)
		if rig.api.current() != nil {
			t.Error("it registered after the Node was deleted")
		}
	})
}

// TestAdoptsWithoutTheRightToCreate holds that who may not create a Node may have one.
func TestAdoptsWithoutTheRightToCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		rig.api.mayNotCreate = true
		reporter := rig.start(t)
		after(time.Minute)
		rig.api.set(func() { rig.api.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "theirs"}} })
		<-reporter.Ready()
		if node := rig.api.current(); node.UID != "theirs" || node.Labels["kubernetes.io/hostname"] != "n1" {
			t.Errorf("node %+v", node.ObjectMeta)
		}
	})
}

// TestOtherResources holds that resources of others stay, and go where nothing is free.
func TestOtherResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		two := resource.MustParse("2")
		rig.api.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{
			Capacity:    v1.ResourceList{"example.org/gpu": two, "hugepages-1Gi": two, "attachable-volumes-x": two},
			Allocatable: v1.ResourceList{"example.org/gpu": two, "hugepages-1Gi": two, "example.org/gone": two},
		}}
		reporter := rig.start(t)
		<-reporter.Ready()
		status := rig.api.current().Status
		gpus, free := status.Capacity["example.org/gpu"], status.Allocatable["example.org/gpu"]
		if gpus.Value() != 2 || free.Value() != 2 {
			t.Errorf("capacity %v, allocatable %v, want 2", &gpus, &free)
		}
		for _, name := range []v1.ResourceName{"hugepages-1Gi", "example.org/gone"} {
			_, capacity := status.Capacity[name]
			_, allocatable := status.Allocatable[name]
			if capacity || allocatable {
				t.Errorf("%s is still there: %v, %v", name, capacity, allocatable)
			}
		}
		if _, ok := status.Capacity["attachable-volumes-x"]; !ok {
			t.Error("another's resource is gone")
		}
	})
}

// TestRebooted holds that another boot is told once, and none where nothing was known.
func TestRebooted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		rig.api.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{BootID: "before"}}}
		reporter := rig.start(t)
		<-reporter.Ready()
		after(time.Minute)
		if n := strings.Count(rig.api.told(), "Rebooted"); n != 1 {
			t.Errorf("told %d times: %s", n, rig.api.told())
		}
		rig.api.set(func() { rig.api.node.Spec.Unschedulable = true })
		after(10 * time.Minute)
		rig.api.set(func() { rig.api.node.Spec.Unschedulable = false })
		after(10 * time.Minute)
		if told := rig.api.told(); !strings.HasSuffix(told, "NodeNotSchedulable NodeSchedulable") {
			t.Errorf("events %q", told)
		}
	})
}

// TestMachineUnreadable holds that a node of which nothing is known is not ready, says
// why, and keeps what was known.
func TestMachineUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		reporter := rig.start(t)
		<-reporter.Ready()
		rig.machine.set("", errors.New("no meminfo"))
		after(15 * time.Second)
		node := rig.api.current()
		if c := find(t, node, v1.NodeReady); c.Status != v1.ConditionFalse || c.Message != "read the machine: no meminfo" {
			t.Errorf("Ready = %+v", c)
		}
		if node.Status.Capacity.Cpu().Value() != 2 || node.Status.NodeInfo.KernelVersion != "6.1" {
			t.Errorf("status %+v", node.Status)
		}
		rig.machine.set("", nil)
		after(15 * time.Second)
		if !isReady(rig.api.current()) {
			t.Error("not ready again")
		}
	})
}
