package eviction

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// What a pod can go beyond, as the metric names it.
const (
	emptyDirLimit  = "emptydirfs.limit"
	podLimit       = "ephemeralpodfs.limit"
	containerLimit = "ephemeralcontainerfs.limit"
)

// evictOverLimits ends every pod that has more on disk than it may have.
func (m *Manager) evictOverLimits(ctx context.Context, l layout) []ending {
	var bounded []*v1.Pod
	for _, pod := range m.running() {
		if isBounded(pod) && !staticpod.IsCritical(pod) {
			bounded = append(bounded, pod)
		}
	}
	if len(bounded) == 0 {
		return nil
	}
	m.refresh(ctx, bounded)
	containers, err := m.containers(ctx)
	m.note("containers", err)
	var ended []ending
	for _, pod := range bounded {
		usage := stats.PodStats{Containers: containers[pod.UID]} // unknown layers: it uses at least the rest
		err := m.measureDisk(ctx, pod, &usage)
		if err != nil || ctx.Err() != nil {
			continue
		}
		if signal, text := overLimit(pod, &usage, l); signal != "" {
			ended = append(ended, m.evict(pod, eviction{signal: signal, grace: minGrace, message: text}))
		}
	}
	return ended
}

// isBounded reports whether a pod says how much it may have on disk.
func isBounded(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if podvolumes.DiskLimit(&pod.Spec.Volumes[i]) != nil {
			return true
		}
	}
	_, bounded := limitOf(pod)
	return bounded
}

func limitOf(pod *v1.Pod) (resource.Quantity, bool) {
	limit, ok := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	return limit, ok
}

// overLimit returns by which of its limits a pod has too much on disk, in the
// metric's words, and says so in upstream's; empty: by none.
func overLimit(pod *v1.Pod, u *stats.PodStats, l layout) (signal, text string) {
	var all int64
	for i := range u.VolumeStats {
		all += value(u.VolumeStats[i].UsedBytes)
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if limit := podvolumes.DiskLimit(v); limit != nil && volumeUses(u, v.Name) > limit.Value() {
			return emptyDirLimit, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit)
		}
	}
	uses := map[string]int64{}
	for i := range u.Containers {
		c := &u.Containers[i]
		logs, layer := usedBytes(c.Logs), usedBytes(c.Rootfs)
		all += logs + layer
		uses[c.Name] += logs
		if l.layersWithVolumes {
			uses[c.Name] += layer
		}
	}
	if limit, ok := limitOf(pod); ok && all > limit.Value() {
		return podLimit, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", &limit)
	}
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			limit := list[i].Resources.Limits.StorageEphemeral()
			if !limit.IsZero() && uses[list[i].Name] > limit.Value() {
				return containerLimit, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", list[i].Name, limit)
			}
		}
	}
	return "", ""
}

func volumeUses(u *stats.PodStats, name string) int64 {
	for i := range u.VolumeStats {
		if u.VolumeStats[i].Name == name {
			return value(u.VolumeStats[i].UsedBytes)
		}
	}
	return 0
}

func usedBytes(f *stats.FsStats) int64 {
	if f == nil {
		return 0
	}
	return value(f.UsedBytes)
}
