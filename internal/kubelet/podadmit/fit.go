package podadmit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// reasonOutOf begins the reasons of pods that do not fit.
const reasonOutOf = "OutOf"

// resources refuses a pod that asks for more than is left.
func resources(n Node, pod *v1.Pod, others []*v1.Pod) *Refusal {
	free := n.Node.Status.Allocatable
	if r := fits(v1.ResourcePods, 1, int64(len(others)), free.Pods().Value()); r != nil {
		return r
	}
	want := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	maps.DeleteFunc(want, func(name v1.ResourceName, _ resource.Quantity) bool { return amount(name, want) == 0 })
	if len(want) == 0 {
		return nil
	}
	used := map[v1.ResourceName]int64{}
	for _, other := range others { // each is added up once: it is most of what admission costs
		theirs := resourcehelper.PodRequests(other, resourcehelper.PodResourcesOptions{})
		for name := range want {
			used[name] += amount(name, theirs)
		}
	}
	for _, name := range inOrder(want) {
		if r := fits(name, amount(name, want), used[name], amount(name, free)); r != nil {
			return r
		}
	}
	return nil
}

// inOrder returns the names of resources, those first that upstream looks at
// first.
func inOrder(list v1.ResourceList) []v1.ResourceName {
	rank := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	var names []v1.ResourceName
	for name := range list {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b v1.ResourceName) int {
		i, j := slices.Index(rank, a), slices.Index(rank, b)
		if i < 0 {
			i = len(rank)
		}
		if j < 0 {
			j = len(rank)
		}
		return cmp.Or(cmp.Compare(i, j), strings.Compare(string(a), string(b)))
	})
	return names
}

// amount returns how much of a resource a list holds: CPU in thousandths, all
// others in their unit.
func amount(name v1.ResourceName, list v1.ResourceList) int64 {
	q := list[name]
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func fits(name v1.ResourceName, asked, used, capacity int64) *Refusal {
	if used+asked <= capacity {
		return nil
	}
	return &Refusal{
		Reason:  reasonOutOf + string(name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, asked, used, capacity),
	}
}

// predicate is a refusal in the form of the scheduler's filters.
func predicate(name, why string) *Refusal {
	return &Refusal{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, why)}
}

// placement refuses a pod whose selector, affinity or node name is not this
// node's.
func placement(n Node, pod *v1.Pod, _ []*v1.Pod) *Refusal {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n.Node); err != nil {
		return predicate("NodeAffinity", err.Error())
	} else if !ok {
		return predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	}
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != n.Node.Name {
		return predicate("NodeName", "node(s) didn't match the requested node name")
	}
	return nil
}

// A hostPort is a port of the node that a pod takes.
type hostPort struct {
	ip       string
	protocol v1.Protocol
	port     int32
}

// conflicts reports whether two pods cannot both have their port: an address
// that means all of them conflicts with every one.
func (p hostPort) conflicts(q hostPort) bool {
	return p.port == q.port && p.protocol == q.protocol && (p.ip == q.ip || p.ip == anyIP || q.ip == anyIP)
}

const anyIP = "0.0.0.0"

func hostPorts(pod *v1.Pod) []hostPort {
	var out []hostPort
	for _, c := range podfiles.Containers(pod) {
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			out = append(out, hostPort{
				ip:       cmp.Or(p.HostIP, anyIP),
				protocol: cmp.Or(p.Protocol, v1.ProtocolTCP),
				port:     p.HostPort,
			})
		}
	}
	return out
}

// ports refuses a pod whose host ports are taken.
func ports(_ Node, pod *v1.Pod, others []*v1.Pod) *Refusal {
	want := hostPorts(pod)
	if len(want) == 0 {
		return nil
	}
	for _, other := range others {
		for _, taken := range hostPorts(other) {
			if slices.ContainsFunc(want, taken.conflicts) {
				return predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
			}
		}
	}
	return nil
}

// taints refuses a pod that does not tolerate that the node is to be empty.
// Static pods stay: nobody else could run them.
func taints(n Node, pod *v1.Pod, _ []*v1.Pod) *Refusal {
	if isStatic(pod) {
		return nil
	}
	for i := range n.Node.Spec.Taints {
		taint := &n.Node.Spec.Taints[i]
		if taint.Effect == v1.TaintEffectNoExecute && !tolerated(pod, taint) {
			return predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
		}
	}
	return nil
}

func tolerated(pod *v1.Pod, taint *v1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t v1.Toleration) bool {
		switch {
		case t.Effect != "" && t.Effect != taint.Effect, t.Key != "" && t.Key != taint.Key:
			return false
		case t.Operator == v1.TolerationOpExists:
			return true
		default:
			return (t.Operator == "" || t.Operator == v1.TolerationOpEqual) && t.Key == taint.Key && t.Value == taint.Value
		}
	})
}
