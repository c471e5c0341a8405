package nodestatus

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func find(t *testing.T, node *v1.Node, kind v1.NodeConditionType) v1.NodeCondition {
	t.Helper()
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	t.Fatalf("node has no condition %s: %v", kind, node.Status.Conditions)
	return v1.NodeCondition{}
}

// attachedByController is what a cluster's controller attaches volumes by.
const attachedByController = "volumes.kubernetes.io/controller-managed-attach-detach"

func TestRegistersAndBecomesReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		rig.runtime.set(nil, false, false)
		rig.cfg.Registration.Labels = map[string]string{"site": "a"}
		reporter := rig.start(t)
		after(time.Second)

		node := rig.api.current()
		if c := find(t, node, v1.NodeReady); c.Status != v1.ConditionFalse || c.Reason != "KubeletNotReady" ||
			c.Message != "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no cni" {
			t.Errorf("Ready without a network = %+v", c)
		}
		if reporter.RuntimeErr() != nil || reporter.NetworkErr() == nil {
			t.Errorf("runtime %v, network %v: want the network alone not ready", reporter.RuntimeErr(), reporter.NetworkErr())
		}

		began := time.Now()
		rig.runtime.set(nil, false, true)
		<-reporter.Ready()
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("ready %s after the network, want one start period at most", took)
		}
		node = rig.api.current()
		if c := find(t, node, v1.NodeReady); c.Status != v1.ConditionTrue || c.Message != "kubelet is posting ready status" {
			t.Errorf("Ready = %+v", c)
		}
		if last := node.Status.Conditions[len(node.Status.Conditions)-1].Type; last != v1.NodeReady {
			t.Errorf("last condition is %s, want Ready", last)
		}
		wantAddresses := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}, {Type: v1.NodeHostName, Address: "n1"}}
		if diff := cmp.Diff(wantAddresses, node.Status.Addresses); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
		if node.Annotations[attachedByController] != "true" {
			t.Errorf("annotations %v", node.Annotations)
		}
		if node.Labels["kubernetes.io/hostname"] != "n1" || node.Labels["kubernetes.io/os"] != "linux" || node.Labels["site"] != "a" {
			t.Errorf("labels = %v", node.Labels)
		}
		if info := node.Status.NodeInfo; info.ContainerRuntimeVersion != "containerd://2.2.1" || info.KubeletVersion != "v1.37.2" {
			t.Errorf("node info = %+v", info)
		}
		if got := node.Status.DaemonEndpoints.KubeletEndpoint.Port; got != 10250 {
			t.Errorf("kubelet port = %d", got)
		}
		// The event follows the patch that tells of readiness.
		synctest.Wait()
		if got := rig.api.told(); got != "Starting NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID NodeReady" {
			t.Errorf("events = %q", got)
		}
	})
}

func TestReportsOnlyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		reporter := rig.start(t)
		<-reporter.Ready()
		after(11 * time.Second)
		before := rig.api.count("patch node status")
		after(4 * time.Minute)
		if got := rig.api.count("patch node status"); got != before {
			t.Errorf("%d patches of an unchanged status in four minutes, want none", got-before)
		}
		after(6 * time.Minute)
		if got := rig.api.count("patch node status"); got < before+1 || got > before+2 {
			t.Errorf("%d patches of an unchanged status in ten minutes, want one each five", got-before)
		}
	})
}

func TestConditionsFollow(t *testing.T) {
	broken := false
	tests := []struct {
		name  string
		cause func(*rig)
		kind  v1.NodeConditionType
		want  v1.NodeCondition
		after time.Duration
	}{
		{
			"disk fills", func(r *rig) { r.machine.setPressure(v1.NodeDiskPressure) },
			v1.NodeDiskPressure,
			v1.NodeCondition{Status: v1.ConditionTrue, Reason: "KubeletHasDiskPressure", Message: "kubelet has disk pressure"},
			11 * time.Second,
		},
		{
			"runtime gone for a moment", func(r *rig) { r.runtime.set(errDown, false, true) },
			v1.NodeReady,
			v1.NodeCondition{Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
			20 * time.Second,
		},
		{
			"runtime gone", func(r *rig) { r.runtime.set(errDown, false, true) },
			v1.NodeReady,
			v1.NodeCondition{Status: v1.ConditionFalse, Reason: "KubeletNotReady", Message: "container runtime is down: connection refused"},
			50 * time.Second,
		},
		{
			"runtime hangs", func(r *rig) { r.runtime.set(nil, true, true) },
			v1.NodeReady,
			v1.NodeCondition{Status: v1.ConditionFalse, Reason: "KubeletNotReady", Message: "container runtime is down: context deadline exceeded"},
			time.Minute,
		},
		{
			"a check fails", func(*rig) { broken = true },
			v1.NodeReady,
			v1.NodeCondition{Status: v1.ConditionFalse, Reason: "KubeletNotReady", Message: "PLEG is not healthy: no relist"},
			6 * time.Second,
		},
		{
			"somebody else writes Unknown", func(r *rig) {
				r.api.set(func() { r.api.node.Status.Conditions[3].Status = v1.ConditionUnknown })
			},
			v1.NodeReady,
			v1.NodeCondition{Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
			16 * time.Second,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newRig()
				broken = false
				rig.cfg.Checks = []Check{{"PLEG", func() error {
					rig.api.mu.Lock() // any lock that both sides take
					defer rig.api.mu.Unlock()
					if broken {
						return errors.New("no relist")
					}
					return nil
				}}}
				reporter := rig.start(t)
				<-reporter.Ready()
				leases := rig.api.count("update lease")
				if tt.name == "a check fails" {
					rig.api.set(func() { tt.cause(rig) })
				} else {
					tt.cause(rig)
				}
				after(tt.after)
				got := find(t, rig.api.current(), tt.kind)
				if got.Status != tt.want.Status || got.Reason != tt.want.Reason || got.Message != tt.want.Message {
					t.Errorf("%s = %+v, want %+v", tt.kind, got, tt.want)
				}
				if renewed := rig.api.count("update lease") - leases; renewed < int(tt.after/(10*time.Second))-1 {
					t.Errorf("%d lease renewals in %s", renewed, tt.after)
				}
			})
		})
	}
}

func TestAdoptsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		rig.cfg.Registration.Taints = []v1.Taint{{Key: "ours", Effect: v1.TaintEffectNoSchedule}}
		theirs := v1.Taint{Key: "theirs", Effect: v1.TaintEffectNoExecute}
		rig.api.node = &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "old", Labels: map[string]string{"keep": "me", "kubernetes.io/hostname": "wrong"}, Annotations: map[string]string{"keep": "me"}},
			Spec:       v1.NodeSpec{Taints: []v1.Taint{theirs}},
			Status: v1.NodeStatus{
				Addresses:  []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.9.9.9"}, {Type: v1.NodeInternalIP, Address: "10.9.9.8"}},
				Conditions: []v1.NodeCondition{{Type: "Other", Status: v1.ConditionTrue}},
			},
		}
		reporter := rig.start(t)
		<-reporter.Ready()
		node := rig.api.current()
		if node.UID != "old" || node.Labels["keep"] != "me" || node.Labels["kubernetes.io/hostname"] != "n1" {
			t.Errorf("node %s has labels %v", node.UID, node.Labels)
		}
		if node.Annotations[attachedByController] != "true" || node.Annotations["keep"] != "me" {
			t.Errorf("node has annotations %v", node.Annotations)
		}
		if diff := cmp.Diff([]v1.Taint{theirs}, node.Spec.Taints); diff != "" {
			t.Errorf("taints (-want +got):\n%s", diff)
		}
		want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}, {Type: v1.NodeHostName, Address: "n1"}}
		if diff := cmp.Diff(want, node.Status.Addresses); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
		if c := find(t, node, "Other"); c.Status != v1.ConditionTrue {
			t.Errorf("another's condition = %+v", c)
		}
	})
}

func TestSurvivesTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		rig.api.down = true
		reporter := rig.start(t)
		after(time.Minute)
		select {
		case <-reporter.Registered():
			t.Error("registered without an API")
		default:
		}
		rig.api.set(func() { rig.api.down = false })
		<-reporter.Registered()
		if node := reporter.Node(); node == nil || node.UID != "node-1" {
			t.Errorf("registered node = %v", node)
		}
		<-reporter.Ready()

		// The Node is deleted behind our back: it is registered anew, and the
		// lease follows it.
		rig.api.set(func() { rig.api.node, rig.api.lease = nil, nil })
		after(time.Minute)
		node := rig.api.current()
		if node == nil || node.UID != "node-2" || !isReady(node) {
			t.Fatalf("node after its deletion = %+v", node)
		}
		rig.api.mu.Lock()
		defer rig.api.mu.Unlock()
		lease := rig.api.lease
		if lease == nil || *lease.Spec.HolderIdentity != "n1" || *lease.Spec.LeaseDurationSeconds != 40 ||
			lease.OwnerReferences[0].UID != "node-2" || time.Since(lease.Spec.RenewTime.Time) > 10*time.Second {
			t.Errorf("lease = %+v", lease)
		}
	})
}

// TestPressureTaints holds that a node is tainted while it has pressure, where
// that is our work, and that others' taints stay.
func TestPressureTaints(t *testing.T) {
	theirs := v1.Taint{Key: "theirs", Effect: v1.TaintEffectNoSchedule}
	taint := func(key string) v1.Taint { return v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule} }
	for name, test := range map[string]struct {
		ours   bool
		during []v1.Taint
	}{
		"ours":           {true, []v1.Taint{theirs, taint("node.kubernetes.io/disk-pressure"), taint("node.kubernetes.io/memory-pressure")}},
		"a controller's": {false, []v1.Taint{theirs}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newRig()
				rig.cfg.Registration.Taints, rig.cfg.PressureTaints = []v1.Taint{theirs}, test.ours
				reporter := rig.start(t)
				after(20 * time.Second)
				patches := rig.api.count("patch node")
				if patches != 0 {
					t.Errorf("%d patches without pressure", patches)
				}
				rig.machine.setPressure(v1.NodeDiskPressure, v1.NodeMemoryPressure)
				reporter.Poke()
				after(time.Minute)
				if diff := cmp.Diff(test.during, reporter.Node().Spec.Taints); diff != "" {
					t.Errorf("under pressure (-want +got):\n%s", diff)
				}
				if got := rig.api.count("patch node"); test.ours && got != 1 {
					t.Errorf("%d patches in a minute of pressure, want 1", got)
				}
				rig.machine.setPressure()
				reporter.Poke()
				after(time.Second)
				if diff := cmp.Diff([]v1.Taint{theirs}, reporter.Node().Spec.Taints); diff != "" {
					t.Errorf("after it (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestAllocatable(t *testing.T) {
	rig := newRig()
	has, _, err := rig.machine.Machine()
	if err != nil {
		t.Fatal(err)
	}
	has["hugepages-2Mi"] = *has.Memory()
	tests := []struct {
		name string
		has  v1.ResourceList
		want [3]int64 // CPU in thousandths, memory and disk in bytes
	}{
		{"thresholds and reservation", v1.ResourceList{v1.ResourceCPU: has[v1.ResourceCPU], v1.ResourceMemory: has[v1.ResourceMemory], v1.ResourceEphemeralStorage: has[v1.ResourceEphemeralStorage]}, [3]int64{1500, 924 << 20, 900}},
		{"huge pages take all memory", has, [3]int64{1500, 0, 900}},
	}
	reserved := v1.ResourceList{v1.ResourceCPU: *has.Cpu()}
	half := reserved[v1.ResourceCPU]
	half.SetMilli(500)
	reserved[v1.ResourceCPU] = half
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			free := allocatable(tt.has, reserved, withheld(tt.has))
			got := [3]int64{free.Cpu().MilliValue(), free.Memory().Value(), free.StorageEphemeral().Value()}
			if got != tt.want {
				t.Errorf("allocatable = %v, want %v", got, tt.want)
			}
		})
	}
}

// TestLooksWithoutTheAPI holds that the runtime is looked at also while the node
// cannot register: pods that are known from before may start then.
func TestLooksWithoutTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		rig.runtime.set(nil, false, false)
		rig.api.set(func() { rig.api.down = true })
		reporter := rig.start(t)
		after(time.Minute)
		if reporter.NetworkErr() == nil || !reporter.Answered().IsZero() {
			t.Fatalf("network %v, answered %v", reporter.NetworkErr(), reporter.Answered())
		}
		rig.runtime.set(nil, false, true)
		after(time.Second)
		if err := reporter.NetworkErr(); err != nil {
			t.Errorf("a second after the network came: %v", err)
		}
		rig.api.set(func() { rig.api.down = false })
		after(time.Minute)
		if reporter.Node() == nil || time.Since(reporter.Answered()) > 15*time.Second {
			t.Errorf("node %v, answered %v", reporter.Node(), reporter.Answered())
		}
	})
}

// What is in use is said as soon as somebody asks for it; what a controller
// attached is the controller's.
func TestVolumesInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		var use []v1.UniqueVolumeName
		rig.cfg.VolumesInUse = func() []v1.UniqueVolumeName {
			rig.api.mu.Lock() // any lock that both sides take
			defer rig.api.mu.Unlock()
			return use
		}
		reporter := rig.start(t)
		<-reporter.Ready()
		attached := []v1.AttachedVolume{{Name: "a", DevicePath: "/dev/a"}}
		rig.api.set(func() { rig.api.node.Status.VolumesAttached = attached })
		for _, want := range [][]v1.UniqueVolumeName{{"a", "b"}, {"b"}, nil} {
			rig.api.set(func() { use = want })
			reporter.Poke()
			synctest.Wait()
			status := rig.api.current().Status
			if !slices.Equal(status.VolumesInUse, want) || !slices.Equal(status.VolumesAttached, attached) {
				t.Errorf("in use %v, attached %v; want %v, %v", status.VolumesInUse, status.VolumesAttached, want, attached)
			}
			if got := reporter.Node().Status.VolumesInUse; !slices.Equal(got, want) {
				t.Errorf("the reporter knows %v, want %v", got, want)
			}
		}
	})
}
