package binder

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// among returns which rules about other pods keep pod off the node. With one
// node, every topology that the node has a label for is that node: a term
// asks only whether some pod on it matches.
func among(pod *corev1.Pod, w *world) []string {
	var why []string
	if !affine(pod, w) {
		why = append(why, reasonAffinity)
	}
	if slices.ContainsFunc(antiAffinityTerms(pod), func(t corev1.PodAffinityTerm) bool {
		return w.has(t.TopologyKey) && slices.ContainsFunc(w.pods, func(other *corev1.Pod) bool { return w.matches(t, pod, other) })
	}) {
		why = append(why, reasonAntiAffinity)
	}
	if slices.ContainsFunc(w.pods, func(other *corev1.Pod) bool {
		return slices.ContainsFunc(antiAffinityTerms(other), func(t corev1.PodAffinityTerm) bool {
			return w.has(t.TopologyKey) && w.matches(t, other, pod)
		})
	}) {
		why = append(why, reasonExistingAnti)
	}
	// One domain is always even; a constraint can fail only by lacking its
	// label, or by wanting more domains than there are.
	if slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == corev1.DoNotSchedule && (!w.has(c.TopologyKey) || w.crowded(c, pod))
	}) {
		why = append(why, reasonSpread)
	}
	return why
}

// affine reports whether each required affinity term has a pod on the node.
// A pod that matches all of its own terms may be the first, as upstream.
func affine(pod *corev1.Pod, w *world) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAffinity == nil {
		return true
	}
	terms := pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	anybody, first := false, true
	satisfied := true
	for _, t := range terms {
		if !w.has(t.TopologyKey) {
			return false
		}
		found := slices.ContainsFunc(w.pods, func(other *corev1.Pod) bool { return w.matches(t, pod, other) })
		anybody = anybody || found
		satisfied = satisfied && found
		first = first && w.matches(t, pod, pod)
	}
	return satisfied || first && !anybody
}

func antiAffinityTerms(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// crowded reports whether the pod would be one too many on the only domain of
// a constraint that wants more domains: those that lack count as empty.
func (w *world) crowded(c corev1.TopologySpreadConstraint, pod *corev1.Pod) bool {
	if c.MinDomains == nil || *c.MinDomains <= 1 {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		return true
	}
	count := int32(0)
	for _, other := range append(slices.Clone(w.pods), pod) {
		if other.Namespace == pod.Namespace && other.DeletionTimestamp == nil && selector.Matches(labels.Set(other.Labels)) {
			count++
		}
	}
	return count > c.MaxSkew
}

func (w *world) has(label string) bool {
	_, ok := w.node.Labels[label]
	return ok
}

// matches reports whether a term of owner's selects other.
func (w *world) matches(t corev1.PodAffinityTerm, owner, other *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil || !selector.Matches(labels.Set(other.Labels)) {
		return false
	}
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		return other.Namespace == owner.Namespace
	}
	if slices.Contains(t.Namespaces, other.Namespace) {
		return true
	}
	namespaces, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
	return err == nil && namespaces.Matches(w.namespaces[other.Namespace])
}
