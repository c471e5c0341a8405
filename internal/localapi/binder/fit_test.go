package binder

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func testNode(change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{corev1.LabelHostname: "node1", "disk": "ssd"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("3"),
		}},
	}
	if change != nil {
		change(n)
	}
	return n
}

func testPod(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			SchedulerName: corev1.DefaultSchedulerName,
			Containers:    []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
	if change != nil {
		change(p)
	}
	return p
}

func cpu(amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
}

func port(ip string, number int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostIP: ip, HostPort: number, ContainerPort: number, Protocol: corev1.ProtocolTCP}}
	}
}

func term(app string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}}
}

func near(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(app)}}
	}
}

func apart(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(app)}}
	}
}

func TestFit(t *testing.T) {
	taint := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: effect}} }
	}
	tolerate := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
	}
	other := func(change func(*corev1.Pod)) []*corev1.Pod { return []*corev1.Pod{testPod("other", change)} }
	for _, tc := range []struct {
		name string
		node func(*corev1.Node)
		on   []*corev1.Pod
		pod  func(*corev1.Pod)
		want []string
	}{
		{name: "plain"},
		{name: "selector matches", pod: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }},
		{name: "selector", pod: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "tape"} }, want: []string{reasonSelector}},
		{name: "affinity to another node", pod: func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node2"}}}}},
			}}}
		}, want: []string{reasonSelector}},

		{name: "taint", node: taint(corev1.TaintEffectNoSchedule), want: []string{"node(s) had untolerated taint(s) {k: v}"}},
		{name: "taint to evict", node: taint(corev1.TaintEffectNoExecute), want: []string{"node(s) had untolerated taint(s) {k: v}"}},
		{name: "taint tolerated", node: taint(corev1.TaintEffectNoSchedule), pod: tolerate},
		{name: "taint that only prefers", node: taint(corev1.TaintEffectPreferNoSchedule)},
		{name: "cordoned", node: func(n *corev1.Node) { n.Spec.Unschedulable = true }, want: []string{reasonUnschedulable}},
		{name: "cordoned, tolerated", node: func(n *corev1.Node) { n.Spec.Unschedulable = true }, pod: func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}},

		{name: "just enough", on: other(cpu("1500m")), pod: cpu("500m")},
		{name: "too little", on: other(cpu("1500m")), pod: cpu("501m"), want: []string{"Insufficient cpu"}},
		{name: "asks for nothing on a full node", on: other(cpu("9"))},
		{name: "a device that is not there", pod: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
		}, want: []string{"Insufficient example.com/gpu"}},
		{name: "too many", on: []*corev1.Pod{testPod("a", nil), testPod("b", nil), testPod("c", nil)}, want: []string{reasonPods}},
		{name: "node says nothing yet", node: func(n *corev1.Node) { n.Status.Allocatable = nil }, pod: cpu("9")},

		{name: "port taken", on: other(port("", 80)), pod: port("", 80), want: []string{reasonPorts}},
		{name: "port taken on every address", on: other(port("", 80)), pod: port("10.0.0.1", 80), want: []string{reasonPorts}},
		{name: "port on another address", on: other(port("10.0.0.2", 80)), pod: port("10.0.0.1", 80)},
		{name: "another port", on: other(port("", 81)), pod: port("", 80)},

		{name: "near nobody", pod: near("other"), want: []string{reasonAffinity}},
		{name: "near somebody", on: other(nil), pod: near("other")},
		{name: "near its own kind, the first", pod: near("pod")},
		{name: "near somebody of another namespace", on: other(func(p *corev1.Pod) { p.Namespace = "else" }), pod: near("other"), want: []string{reasonAffinity}},
		{name: "near somebody of a namespace by label", on: other(func(p *corev1.Pod) { p.Namespace = "else" }), pod: func(p *corev1.Pod) {
			near("other")(p)
			p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
		}},
		{name: "apart from somebody", on: other(nil), pod: apart("other"), want: []string{reasonAntiAffinity}},
		{name: "apart from nobody", pod: apart("other")},
		{name: "somebody apart from it", on: other(apart("pod")), want: []string{reasonExistingAnti}},
		{name: "apart by a label the node lacks", on: other(nil), pod: func(p *corev1.Pod) {
			apart("other")(p)
			p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey = "rack"
		}},
		{name: "spread over a label the node lacks", pod: func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "rack", WhenUnsatisfiable: corev1.DoNotSchedule}}
		}, want: []string{reasonSpread}},
		{name: "spread over two domains, the second pod", on: other(func(p *corev1.Pod) { p.Labels["app"] = "pod" }), pod: func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, MinDomains: ptr.To[int32](2), TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "pod"}},
			}}
		}, want: []string{reasonSpread}},

		{name: "several reasons", node: taint(corev1.TaintEffectNoSchedule), pod: cpu("9"), want: []string{"node(s) had untolerated taint(s) {k: v}", "Insufficient cpu"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &world{node: testNode(tc.node), pods: tc.on, namespaces: map[string]labels.Set{"else": {"team": "x"}}}
			if diff := cmp.Diff(tc.want, fit(testPod("pod", tc.pod), w)); diff != "" {
				t.Error("-want +got\n" + diff)
			}
		})
	}
}
