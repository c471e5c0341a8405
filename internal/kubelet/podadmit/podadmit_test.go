package podadmit

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func requests(list ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(list); i += 2 {
		out[v1.ResourceName(list[i])] = resource.MustParse(list[i+1])
	}
	return out
}

func newPod(name string, change func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func asks(list ...string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = requests(list...) }
}

func takesPort(port int32, ip string, protocol v1.Protocol) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: port, HostIP: ip, Protocol: protocol}}
	}
}

func under(pressure ...v1.NodeConditionType) func(*Node) {
	return func(n *Node) { n.Pressure = pressure }
}

func withVolume(source v1.VolumeSource, from string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations = map[string]string{"kubernetes.io/config.source": from}
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: source}}
	}
}

func TestAdmit(t *testing.T) {
	evict := v1.Taint{Key: "gone", Value: "soon", Effect: v1.TaintEffectNoExecute}
	tests := map[string]struct {
		pod    func(*v1.Pod)
		node   func(*Node)
		others []*v1.Pod
		want   *Refusal
	}{
		"memory is low, none is asked for": {
			node: under(v1.NodeMemoryPressure),
			want: &Refusal{"Evicted", "The node had condition: [MemoryPressure]. "},
		},
		"memory is low, some is asked for": {pod: asks("memory", "64Mi"), node: under(v1.NodeMemoryPressure)},
		"memory is low, which is tolerated": {
			pod: func(p *v1.Pod) {
				p.Spec.Tolerations = []v1.Toleration{{Key: "node.kubernetes.io/memory-pressure", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}}
			},
			node: under(v1.NodeMemoryPressure),
		},
		"memory is low, something else is tolerated": {
			pod: func(p *v1.Pod) {
				p.Spec.Tolerations = []v1.Toleration{{Key: "node.kubernetes.io/disk-pressure", Operator: v1.TolerationOpExists}}
			},
			node: under(v1.NodeMemoryPressure),
			want: &Refusal{"Evicted", "The node had condition: [MemoryPressure]. "},
		},
		"the disk is low": {
			pod: asks("memory", "64Mi"), node: under(v1.NodeDiskPressure),
			want: &Refusal{"Evicted", "The node had condition: [DiskPressure]. "},
		},
		"the disk is low, which is tolerated": {
			pod:  func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}} },
			node: under(v1.NodeDiskPressure),
			want: &Refusal{"Evicted", "The node had condition: [DiskPressure]. "},
		},
		"process identifiers and memory are low": {
			pod: asks("memory", "64Mi"), node: under(v1.NodeMemoryPressure, v1.NodePIDPressure),
			want: &Refusal{"Evicted", "The node had condition: [MemoryPressure PIDPressure]. "},
		},
		"the disk is low, the pod is critical": {
			pod: func(p *v1.Pod) { p.Spec.Priority = new(int32(2_000_000_000)) }, node: under(v1.NodeDiskPressure),
		},
		"the disk is low, the pod is important": {
			pod: func(p *v1.Pod) { p.Spec.Priority = new(int32(1_999_999_999)) }, node: under(v1.NodeDiskPressure),
			want: &Refusal{"Evicted", "The node had condition: [DiskPressure]. "},
		},
		"the disk is low, the pod is static": {
			pod: func(p *v1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} }, node: under(v1.NodeDiskPressure),
		},
		"a claim of its own": {pod: withVolume(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}, "api")},
		"a claim of its own, and static": {
			pod:  withVolume(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}, "file"),
			want: &Refusal{"UnsupportedField", "spec.volumes[0] (v): ephemeral: it is made for a pod of the API, which a static pod is not: create the pod with kubectl"},
		},
		"fits":      {pod: asks("cpu", "500m", "memory", "64Mi")},
		"fits just": {pod: asks("cpu", "1500m"), others: []*v1.Pod{newPod("o", asks("cpu", "500m"))}},
		"too much CPU": {
			pod: asks("cpu", "1501m", "memory", "5Gi"), others: []*v1.Pod{newPod("o", asks("cpu", "500m"))},
			want: &Refusal{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 1501, used: 500, capacity: 2000"},
		},
		"too much CPU with the overhead of both": {
			pod:    func(p *v1.Pod) { asks("cpu", "1")(p); p.Spec.Overhead = requests("cpu", "300m") },
			others: []*v1.Pod{newPod("o", func(p *v1.Pod) { asks("cpu", "500m")(p); p.Spec.Overhead = requests("cpu", "300m") })},
			want:   &Refusal{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 1300, used: 800, capacity: 2000"},
		},
		"too much memory": {
			pod:  asks("memory", "5Gi"),
			want: &Refusal{"OutOfmemory", "Node didn't have enough resource: memory, requested: 5368709120, used: 0, capacity: 1073741824"},
		},
		"a device that is not here": {
			pod:  asks("example.com/gpu", "1"),
			want: &Refusal{"OutOfexample.com/gpu", "Node didn't have enough resource: example.com/gpu, requested: 1, used: 0, capacity: 0"},
		},
		"too many pods": {
			others: []*v1.Pod{newPod("a", nil), newPod("b", nil)},
			want:   &Refusal{"OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2"},
		},
		"selector": {
			pod:  func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} },
			want: &Refusal{"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		},
		"selector that matches": {pod: func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} }},
		"another node": {
			pod:  func(p *v1.Pod) { p.Spec.NodeName = "elsewhere" },
			want: &Refusal{"NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name"},
		},
		"port taken on all addresses": {
			pod: takesPort(8080, "10.0.0.1", ""), others: []*v1.Pod{newPod("o", takesPort(8080, "", v1.ProtocolTCP))},
			want: &Refusal{"NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		},
		"port on another address":  {pod: takesPort(8080, "10.0.0.1", ""), others: []*v1.Pod{newPod("o", takesPort(8080, "10.0.0.2", ""))}},
		"port of another protocol": {pod: takesPort(53, "", v1.ProtocolUDP), others: []*v1.Pod{newPod("o", takesPort(53, "", v1.ProtocolTCP))}},
		"taint": {
			node: func(n *Node) { n.Node.Spec.Taints = []v1.Taint{evict} },
			want: &Refusal{"TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"},
		},
		"taint tolerated": {
			pod:  func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: "gone", Operator: v1.TolerationOpExists}} },
			node: func(n *Node) { n.Node.Spec.Taints = []v1.Taint{evict} },
		},
		"taint and a static pod": {
			pod:  func(p *v1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} },
			node: func(n *Node) { n.Node.Spec.Taints = []v1.Taint{evict} },
		},
		"taint that only keeps new pods away": {
			node: func(n *Node) { n.Node.Spec.Taints = []v1.Taint{{Key: "x", Effect: v1.TaintEffectNoSchedule}} },
		},
		"Windows": {
			pod:  func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} },
			want: &Refusal{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"},
		},
		"sysctl": {
			pod: func(p *v1.Pod) {
				p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net/core/somaxconn", Value: "1"}}}
			},
			want: &Refusal{"SysctlForbidden", `forbidden sysctl: "net.core.somaxconn" not allowlisted`},
		},
		"sysctl that the node allows": {
			pod: func(p *v1.Pod) {
				p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net.core.somaxconn", Value: "1"}}}
			},
			node: func(n *Node) { n.UnsafeSysctls = []string{"net.core.*"} },
		},
		"safe sysctl on the node's network": {
			pod: func(p *v1.Pod) {
				p.Spec.HostNetwork = true
				p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net.ipv4.tcp_syncookies", Value: "1"}}}
			},
			want: &Refusal{"SysctlForbidden", `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`},
		},
		"sysctl of users, which are the host's": {
			pod: func(p *v1.Pod) {
				p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "user.max_net_namespaces", Value: "1"}}}
			},
			node: func(n *Node) { n.UnsafeSysctls = []string{"user/*"} },
			want: &Refusal{"SysctlForbidden", `forbidden sysctl: "user.max_net_namespaces" not allowed with host User enabled`},
		},
		"sysctl of users, which are its own": {
			pod: func(p *v1.Pod) {
				p.Spec.HostUsers = new(false)
				p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "user.max_net_namespaces", Value: "1"}}}
			},
			node: func(n *Node) { n.UnsafeSysctls = []string{"user/*"} },
		},
		"AppArmor by annotation": {
			pod: func(p *v1.Pod) {
				p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/c": "runtime/default"}
			},
			want: &Refusal{"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"},
		},
		"strict groups": {
			pod: func(p *v1.Pod) {
				p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: new(v1.SupplementalGroupsPolicyStrict)}
			},
			want: &Refusal{"SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"},
		},
		"UID that leaves the folder": {
			pod:  func(p *v1.Pod) { p.UID = "../../etc" },
			want: &Refusal{"FailedValidation", `metadata.uid: "../../etc" cannot be the name of a folder`},
		},
		"a node that is not registered": {
			pod:  func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} },
			node: func(n *Node) { n.Node = nil },
		},
		"unsupported on a node that is not registered": {
			pod:  func(p *v1.Pod) { p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}} },
			node: func(n *Node) { n.Node = nil },
			want: &Refusal{"UnsupportedField", "spec.resourceClaims: this version does not support it"},
		},
		"unsupported volume": {
			pod: func(p *v1.Pod) {
				p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{}}}}
			},
			want: &Refusal{"UnsupportedField", "spec.volumes[0] (v): iscsi: this version cannot mount such volumes"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := Node{Node: &v1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}},
				Status:     v1.NodeStatus{Allocatable: requests("cpu", "2", "memory", "1Gi", "pods", "2")},
			}}
			if test.node != nil {
				test.node(&n)
			}
			if diff := cmp.Diff(Admit(n, newPod("new", test.pod), test.others), test.want); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
		})
	}
}

func TestCheckSysctls(t *testing.T) {
	tests := map[string]string{
		"net.core.somaxconn": "", "net.core.*": "", "kernel.shm*": "", "user.*": "", "net/ipv4/conf/eth0.1/*": "",
		"vm.swappiness": "not known to be namespaced", "kernel.*": "not known to be namespaced", "net.*.x": "only at the end",
	}
	for entry, want := range tests {
		err := CheckSysctls([]string{"net.core.somaxconn", entry})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", entry, err, want)
		}
	}
}
