package podvolumes

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// memorySize returns the size in bytes of an emptyDir in memory: the smallest
// of its own limit, what the pod may use, and what the node has for pods, as
// the upstream kubelet's emptyDir sizes it. 0 is for other media.
func memorySize(pod *v1.Pod, source *v1.EmptyDirVolumeSource, allocatable v1.ResourceList) int64 {
	if source.Medium != v1.StorageMediumMemory {
		return 0
	}
	size := allocatable.Memory().Value()
	less := func(limit int64) {
		if limit > 0 && (size == 0 || limit < size) {
			size = limit
		}
	}
	if limited(pod) {
		limits := resource.PodLimits(pod, resource.PodResourcesOptions{})
		less(limits.Memory().Value())
	}
	if source.SizeLimit != nil {
		less(source.SizeLimit.Value())
	}
	return size
}

// limited reports whether the pod as a whole has a memory limit.
func limited(pod *v1.Pod) bool {
	if resource.IsPodLevelResourcesSet(pod) {
		if _, ok := pod.Spec.Resources.Limits[v1.ResourceMemory]; ok {
			return true
		}
	}
	for c := range containers(pod) {
		if c.Resources.Limits.Memory().IsZero() {
			return false
		}
	}
	return true
}
