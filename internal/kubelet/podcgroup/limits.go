package podcgroup

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	componentresource "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"
)

// The kernel's bounds of cpu.shares, and the period of a CPU quota.
const (
	minShares   = 2
	maxShares   = 262144
	quotaPeriod = 100_000 // microseconds
	minQuota    = 1_000   // microseconds
)

// limits is what bounds a pod's group.
type limits struct {
	class     v1.PodQOSClass
	milliCPU  int64            // asked for, in thousandths of a CPU
	quota     int64            // microseconds of CPU time in a quotaPeriod; 0: no limit
	memory    int64            // bytes; 0: no limit
	pids      int64            // 0: no limit
	hugePages map[string]int64 // bytes by page size, as the kernel writes the size (2MB)
}

// limitsOf computes the limits of a pod's group as the upstream kubelet's
// ResourceConfigForPod does: a limit on the whole pod needs a limit on each of
// its containers, or one on the pod itself.
func limitsOf(pod *v1.Pod, pids int64) limits {
	l := limits{class: qos.GetPodQOS(pod), pids: max(pids, 0), hugePages: map[string]int64{}}
	asked := componentresource.PodRequests(pod, componentresource.PodResourcesOptions{})
	bound := componentresource.PodLimits(pod, componentresource.PodResourcesOptions{})
	if l.class != v1.PodQOSBestEffort {
		l.milliCPU = asked.Cpu().MilliValue()
		if everyContainerLimits(pod, v1.ResourceCPU) {
			l.quota = cpuQuota(bound.Cpu().MilliValue())
		}
		if everyContainerLimits(pod, v1.ResourceMemory) {
			l.memory = bound.Memory().Value()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if size, ok := hugePageSize(name); ok {
			quantity := asked[name]
			l.hugePages[size] += quantity.Value()
		}
	}
	return l
}

func everyContainerLimits(pod *v1.Pod, name v1.ResourceName) bool {
	has := func(list v1.ResourceList) bool {
		quantity, ok := list[name]
		return ok && !quantity.IsZero()
	}
	if pod.Spec.Resources != nil && has(pod.Spec.Resources.Limits) {
		return true
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if !has(containers[i].Resources.Limits) {
				return false
			}
		}
	}
	return true
}

// hugePageSize returns the page size of a hugepages-<size> resource as the
// kernel writes it in its file names.
func hugePageSize(name v1.ResourceName) (string, bool) {
	text := string(name)
	if len(text) <= len(v1.ResourceHugePagesPrefix) || text[:len(v1.ResourceHugePagesPrefix)] != v1.ResourceHugePagesPrefix {
		return "", false
	}
	size, err := resource.ParseQuantity(text[len(v1.ResourceHugePagesPrefix):])
	if err != nil {
		return "", false
	}
	return kernelSize(size.Value()), true
}

// cpuShares converts thousandths of a CPU to the v1 weight: 1024 a CPU.
func cpuShares(milli int64) int64 {
	return min(max(milli*1024/1000, minShares), maxShares)
}

// cpuWeight converts a v1 weight to the v2 one, as runtimes do: both ends of
// [2, 262144] meet those of [1, 10000].
func cpuWeight(shares int64) int64 {
	return 1 + (shares-minShares)*9999/(maxShares-minShares)
}

// cpuQuota converts thousandths of a CPU to microseconds a quotaPeriod; 0
// stays 0, which is no limit.
func cpuQuota(milli int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*quotaPeriod/1000, minQuota)
}
