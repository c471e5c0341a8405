package eviction

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

// emptyDir is the volumes' source that counts; ConfigMaps, which do too upstream, are
// files of the kubelet's.
const emptyDir = "emptyDir"

// staleAfter is how old the runtime's figures may be: it takes them every ten
// seconds.
const staleAfter = time.Minute

// How long new figures of all pods' volumes are waited for, and the logs of one counted:
// what is not known by then is left to the next look.
const (
	refreshLimit = 10 * time.Second
	logLimit     = 5 * time.Second
)

// measure reads what pods use of a resource, and what their containers do. A pod
// of which that is not known is left out.
func (m *Manager) measure(ctx context.Context, s Signal, l layout, pods []*v1.Pod) map[types.UID]stats.PodStats {
	all := map[types.UID]stats.PodStats{}
	containers, err := m.containers(ctx)
	m.note("containers", err)
	_, layers := l.holds(s)
	if err != nil && s.isDisk() && layers {
		return all // what they have written is not known
	}
	if s.isDisk() {
		m.refresh(ctx, pods)
	}
	for _, pod := range pods {
		usage := stats.PodStats{Containers: containers[pod.UID]}
		var err error
		if s.isDisk() {
			err = m.measureDisk(ctx, pod, &usage)
		} else {
			err = m.measureCgroup(pod, &usage)
		}
		if err != nil {
			m.cfg.Log.Debug("a pod's use is not known, it is not evicted by it", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "err", err)
			continue
		}
		all[pod.UID] = usage
	}
	return all
}

func (m *Manager) measureCgroup(pod *v1.Pod, usage *stats.PodStats) error {
	memory, processes, err := m.cfg.Cgroups.Usage(pod.UID)
	if err != nil {
		return err
	}
	usage.Memory = &stats.MemoryStats{WorkingSetBytes: &memory}
	usage.ProcessStats = &stats.ProcessStats{ProcessCount: &processes}
	return nil
}

// refresh has pods' volumes measured that were not since the last look.
func (m *Manager) refresh(ctx context.Context, pods []*v1.Pod) {
	ctx, cancel := context.WithTimeout(ctx, refreshLimit)
	defer cancel()
	m.cfg.Volumes.Refresh(ctx, m.cfg.Period/2, pods...)
}

// measureDisk adds what a pod has on disk beside layers: at least that, if the figures
// of a volume are stale or not there yet.
func (m *Manager) measureDisk(ctx context.Context, pod *v1.Pod, usage *stats.PodStats) error {
	ctx, cancel := context.WithTimeout(ctx, logLimit)
	defer cancel()
	logs, err := m.cfg.Logs.LogUsage(ctx, pod)
	if err != nil {
		return err
	}
	for _, v := range m.cfg.Volumes.Volumes(pod) {
		if v.Ephemeral && v.Source == emptyDir && !v.Stale {
			usage.VolumeStats = append(usage.VolumeStats, stats.VolumeStats{Name: v.Name, FsStats: stats.FsStats{
				Time: metav1.NewTime(v.Time), UsedBytes: v.UsedBytes, InodesUsed: v.InodesUsed,
			}})
		}
	}
	for name, fs := range logs {
		found := false
		for i := range usage.Containers {
			if usage.Containers[i].Name == name {
				usage.Containers[i].Logs, found = &fs, true
			}
		}
		if !found { // it does not run now
			usage.Containers = append(usage.Containers, stats.ContainerStats{Name: name, Logs: &fs})
		}
	}
	return nil
}

// containers returns what the runtime knows of the containers that run, by pod.
func (m *Manager) containers(ctx context.Context) (map[types.UID][]stats.ContainerStats, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	list, err := m.cfg.Runtime.ContainerStats(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask what containers use: %w", err)
	}
	all := map[types.UID][]stats.ContainerStats{}
	now := time.Now()
	for _, c := range list {
		uid := types.UID(c.GetAttributes().GetLabels()[runtimelabels.PodUID])
		if uid != "" {
			all[uid] = append(all[uid], containerStats(c, now))
		}
	}
	return all, nil
}

func containerStats(c *runtimeapi.ContainerStats, now time.Time) stats.ContainerStats {
	out := stats.ContainerStats{Name: c.GetAttributes().GetMetadata().GetName()}
	fresh := func(nanos int64) bool { return nanos > 0 && now.Sub(time.Unix(0, nanos)) < staleAfter }
	if memory := c.GetMemory(); memory.GetWorkingSetBytes() != nil && fresh(memory.GetTimestamp()) {
		out.Memory = &stats.MemoryStats{Time: metav1.Unix(0, memory.GetTimestamp()), WorkingSetBytes: new(memory.GetWorkingSetBytes().GetValue())}
	}
	if layer := c.GetWritableLayer(); layer.GetUsedBytes() != nil && fresh(layer.GetTimestamp()) {
		out.Rootfs = &stats.FsStats{
			Time:      metav1.Unix(0, layer.GetTimestamp()),
			UsedBytes: new(layer.GetUsedBytes().GetValue()), InodesUsed: new(layer.GetInodesUsed().GetValue()),
		}
	}
	return out
}
