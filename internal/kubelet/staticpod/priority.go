package staticpod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
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

// IsCritical reports whether a pod, static or not, has the priority of what a
// node or a cluster cannot do without.
func IsCritical(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= scheduling.SystemCriticalPriority
}

// PriorityWarning says what a pod's priority and its class come to where that
// is not what they seem to say; "" if it is. As in the upstream kubelet it is a
// matter of telling, and the pod runs.
func PriorityWarning(pod *corev1.Pod) string {
	name, priority := pod.Spec.PriorityClassName, pod.Spec.Priority
	value, system := classes[name]
	switch {
	case name == "" && priority == nil:
		return ""
	case name == "":
		return fmt.Sprintf("spec.priority %d counts on this node alone: without spec.priorityClassName the API refuses the mirror", *priority)
	case system && (priority == nil || *priority == value):
		return ""
	case system:
		return fmt.Sprintf("spec.priority %d counts on this node alone: class %s is %d and the API refuses the mirror; leave spec.priority out", *priority, name, value)
	case priority == nil:
		return fmt.Sprintf("spec.priorityClassName %q has no value for a static pod, so its priority is 0; write spec.priority beside it", name)
	default:
		return fmt.Sprintf("spec.priority %d counts on this node alone: the API refuses the mirror unless class %s has that value", *priority, name)
	}
}
