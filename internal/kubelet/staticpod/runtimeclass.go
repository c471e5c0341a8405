package staticpod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// ApplyRuntimeClass gives a static pod what its runtime class adds to pods: an
// overhead that the pod does not write itself, a node selector and tolerations.
// Upstream leaves that to the API server, which a static pod never meets: it
// has no overhead there, and its mirror is said to have one.
//
// The API server refuses a pod that selects other nodes than its class does.
// Here the pod must find both: no node takes it.
func ApplyRuntimeClass(pod *corev1.Pod, class *nodev1.RuntimeClass) {
	if class.Overhead != nil && len(pod.Spec.Overhead) == 0 {
		pod.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	}
	if class.Scheduling == nil {
		return
	}
	for name, value := range class.Scheduling.NodeSelector {
		if own, ok := pod.Spec.NodeSelector[name]; ok && own != value {
			require(pod, name, value)
			continue
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[name] = value
	}
	for _, t := range class.Scheduling.Tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(own corev1.Toleration) bool { return equality.Semantic.DeepEqual(own, t) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
}

// require has the pod take only nodes with a label, beside all that it asks for.
func require(pod *corev1.Pod, name, value string) {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := pod.Spec.Affinity.NodeAffinity
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	terms := affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms { // one of them is enough
		terms[i].MatchExpressions = append(terms[i].MatchExpressions, corev1.NodeSelectorRequirement{
			Key: name, Operator: corev1.NodeSelectorOpIn, Values: []string{value},
		})
	}
}
