package eviction

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// A candidate is a pod that may go, with what it uses of the resource that is
// low.
type candidate struct {
	pod   *v1.Pod
	used  int64
	usage stats.PodStats
}

// rank returns the pods that may go because of a signal, the first to go first:
// those that use more than they asked for, then those of low priority, then
// those that use most beyond what they asked for. For process identifiers it is
// priority, then use. That is upstream's order; unlike there, a pod of whose use
// nothing is known, or that uses nothing, does not go.
func rank(s Signal, l layout, pods []*v1.Pod, usage func(*v1.Pod) (stats.PodStats, bool)) []candidate {
	var all []candidate
	for _, pod := range pods {
		if staticpod.IsCritical(pod) {
			continue
		}
		u, known := usage(pod)
		if !known {
			continue
		}
		if used := uses(s, l, &u); used > 0 {
			all = append(all, candidate{pod: pod, used: used, usage: u})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		priority := cmp.Compare(corev1helpers.PodPriority(a.pod), corev1helpers.PodPriority(b.pod))
		if s == PIDAvailable {
			return cmp.Or(priority, cmp.Compare(b.used, a.used))
		}
		overA, overB := a.over(s.resource()), b.over(s.resource())
		return cmp.Or(positiveFirst(overA, overB), priority, cmp.Compare(overB, overA))
	})
	return all
}

func positiveFirst(a, b int64) int {
	switch {
	case (a > 0) == (b > 0):
		return 0
	case a > 0:
		return -1
	default:
		return 1
	}
}

// over returns how much more a pod uses than it asked for. Nobody asks for
// inodes.
func (c candidate) over(name v1.ResourceName) int64 {
	requests := resourcehelper.PodRequests(c.pod, resourcehelper.PodResourcesOptions{})
	asked := requests[name]
	return c.used - asked.Value()
}

// uses returns how much a pod uses of what a signal measures, 0 if that is not
// known.
func uses(s Signal, l layout, u *stats.PodStats) int64 {
	switch s.resource() {
	case v1.ResourceMemory:
		if u.Memory == nil {
			return 0
		}
		return value(u.Memory.WorkingSetBytes)
	case pids:
		if u.ProcessStats == nil {
			return 0
		}
		return value(u.ProcessStats.ProcessCount)
	case inodes:
		return onDisk(s, l, u, func(f *stats.FsStats) *uint64 { return f.InodesUsed })
	default:
		return onDisk(s, l, u, func(f *stats.FsStats) *uint64 { return f.UsedBytes })
	}
}

// onDisk sums what of a pod lies on the filesystem of a signal.
func onDisk(s Signal, l layout, u *stats.PodStats, field func(*stats.FsStats) *uint64) int64 {
	local, layers := l.holds(s)
	var sum int64
	add := func(f *stats.FsStats) {
		if f != nil {
			sum += value(field(f))
		}
	}
	for i := range u.Containers {
		if local {
			add(u.Containers[i].Logs)
		}
		if layers {
			add(u.Containers[i].Rootfs)
		}
	}
	if local {
		for i := range u.VolumeStats {
			add(&u.VolumeStats[i].FsStats)
		}
	}
	return sum
}

func value(n *uint64) int64 {
	if n == nil {
		return 0
	}
	return int64(*n) //nolint:gosec // no machine has so much
}
