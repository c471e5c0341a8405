package binder

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// matters reports whether an update may change what a pod waits for.
func matters(before, after any) bool {
	switch after := after.(type) {
	case *corev1.Pod:
		before := before.(*corev1.Pod)
		return after.Spec.NodeName == "" && before.ResourceVersion != after.ResourceVersion ||
			terminal(before) != terminal(after) ||
			!equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
			!maps.Equal(before.Labels, after.Labels)
	case *corev1.Node:
		before := before.(*corev1.Node)
		return !equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
			!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable) ||
			!maps.Equal(before.Labels, after.Labels)
	case *corev1.Namespace:
		return !maps.Equal(before.(*corev1.Namespace).Labels, after.Labels)
	default: // claims, volumes, classes: few, and rarely updated
		return true
	}
}

// terminal reports whether a pod uses nothing of its node any more.
func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
