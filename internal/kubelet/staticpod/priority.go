package staticpod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/kubernetes/pkg/apis/scheduling"
)

// classes are the priority classes that every cluster has, with their values.
var classes = map[string]int32{
	scheduling.SystemNodeCritical:    scheduling.SystemCriticalPriority + 1000,
	scheduling.SystemClusterCritical: scheduling.SystemCriticalPriority,
}

// setPriority gives a static pod that names one of the system's priority classes
// the class's value. Upstream leaves that to the API server, which a static pod
// never meets, and so stops and evicts such a pod first rather than last.
func setPriority(p *corev1.Pod) {
	if value, ok := classes[p.Spec.PriorityClassName]; ok && p.Spec.Priority == nil {
		p.Spec.Priority = &value
	}
}

// ApplyPriorityClass gives a pod that New returned what its priority class adds, as
// the API server does for pods of its own: the value and whether others end for
// it, where the pod does not say so itself. A pod with neither class nor priority
// gets the default class, the lowest if there are several. A class that is not
// among those given adds nothing.
func ApplyPriorityClass(p *corev1.Pod, among []*schedulingv1.PriorityClass) {
	if p.Spec.PriorityClassName == "" && p.Spec.Priority == nil {
		p.Spec.PriorityClassName = defaultClass(among)
	}
	for _, class := range among {
		if class.Name != p.Spec.PriorityClassName {
			continue
		}
		if p.Spec.Priority == nil {
			p.Spec.Priority = new(class.Value)
		}
		if p.Spec.PreemptionPolicy == nil {
			p.Spec.PreemptionPolicy = class.PreemptionPolicy
		}
	}
}

func defaultClass(among []*schedulingv1.PriorityClass) string {
	var found *schedulingv1.PriorityClass
	for _, class := range among {
		if class.GlobalDefault && (found == nil || class.Value < found.Value) {
			found = class
		}
	}
	if found == nil {
		return ""
	}
	return found.Name
}

// IsCritical reports whether a pod, static or not, has the priority of what a
// node or a cluster cannot do without.
func IsCritical(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= scheduling.SystemCriticalPriority
}

// PriorityWarning says what a pod's priority and its class come to where that
// is not what they seem to say; "" if it is. among are the classes that are known
// beside the system's. As in the upstream kubelet it is a matter of telling, and
// the pod runs.
func PriorityWarning(pod *corev1.Pod, among []*schedulingv1.PriorityClass) string {
	name, priority := pod.Spec.PriorityClassName, pod.Spec.Priority
	value, known := classes[name]
	for _, class := range among {
		if class.Name == name {
			value, known = class.Value, true
		}
	}
	switch {
	case name == "" && priority == nil:
		return ""
	case name == "":
		return fmt.Sprintf("spec.priority %d counts on this node alone: without spec.priorityClassName the API refuses the mirror", *priority)
	case known && (priority == nil || *priority == value):
		return ""
	case known:
		return fmt.Sprintf("spec.priority %d counts on this node alone: class %s is %d and the API refuses the mirror; leave spec.priority out", *priority, name, value)
	case priority == nil:
		return fmt.Sprintf("spec.priorityClassName %q has no value for a static pod, so its priority is 0; put the PriorityClass into the manifest folder, or write spec.priority beside it", name)
	default:
		return fmt.Sprintf("spec.priority %d counts on this node alone: the API refuses the mirror unless class %s has that value", *priority, name)
	}
}
