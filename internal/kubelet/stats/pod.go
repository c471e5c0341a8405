package stats

import (
	"context"
	"path"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// pod reads what one pod uses. status is nil if nothing is known of it.
func (c *Collector) pod(ctx context.Context, before map[string]cpuReading, pod *v1.Pod, status *observed.Status, measured []podvolumes.Measured, disk *statsapi.FsStats) statsapi.PodStats {
	p := statsapi.PodStats{
		PodRef:     statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
		Containers: make([]statsapi.ContainerStats, 0, len(pod.Spec.Containers)),
	}
	if pod.Status.StartTime != nil {
		p.StartTime = *pod.Status.StartTime
	}
	name := pod.Namespace + "/" + pod.Name
	group := c.cfg.PodGroups.Group(pod)
	if err := c.cfg.Groups.Read(group, &c.reading); c.noteGroup("cgroup of pod "+name, err) {
		p.CPU, p.Memory = c.cpuStats(group, &c.reading, before), memoryStats(&c.reading)
		p.IO, p.Swap = ioStats(&c.reading), swapStats(&c.reading)
	}
	sum := storage{}
	logs, err := c.cfg.Logs.LogUsage(ctx, pod)
	if !c.note("logs of pod "+name, err) {
		logs = nil
	}
	if status != nil {
		processes, known := uint64(0), false
		for i := range status.Containers {
			s := &status.Containers[i]
			if s.State != observed.Running || status.Container(s.Name) != s {
				continue // the newest of each name alone
			}
			container := statsapi.ContainerStats{Name: s.Name, StartTime: sinceStart(s.StartedAt)}
			group := path.Join(group, s.ID)
			if err := c.cfg.Groups.Read(group, &c.reading); c.noteGroup("cgroup of container "+name+"/"+s.Name, err) {
				container.CPU, container.Memory = c.cpuStats(group, &c.reading, before), memoryStats(&c.reading)
				container.IO, container.Swap = ioStats(&c.reading), swapStats(&c.reading)
			}
			if ids, err := c.cfg.Groups.Processes(group); err == nil {
				processes, known = processes+uint64(len(ids)), true
			}
			container.Rootfs = onDisk(c.layers, s.ID, disk)
			container.Logs = onDisk(logs, s.Name, disk)
			sum.add(container.Rootfs)
			p.Containers = append(p.Containers, container)
		}
		if known {
			p.ProcessStats = &statsapi.ProcessStats{ProcessCount: &processes}
		}
		if !isHostNetwork(pod) {
			p.Network = c.podNetwork(group, status)
		}
	}
	for i := range logs {
		used := logs[i]
		sum.add(&used)
	}
	if len(measured) > 0 {
		p.VolumeStats = make([]statsapi.VolumeStats, 0, len(measured))
	}
	for _, m := range measured {
		v := volumeStats(pod.Namespace, m)
		if m.Ephemeral {
			sum.add(&v.FsStats)
		}
		p.VolumeStats = append(p.VolumeStats, v)
	}
	p.EphemeralStorage = sum.stats(disk)
	return p
}

// podNetwork reads the network of a pod through any process of its sandbox.
func (c *Collector) podNetwork(group string, status *observed.Status) *statsapi.NetworkStats {
	sandbox := status.ReadySandbox()
	if sandbox == nil {
		return nil
	}
	ids, err := c.cfg.Groups.Processes(path.Join(group, sandbox.GetId()))
	if err != nil || len(ids) == 0 {
		return nil // it has just ended
	}
	interfaces, err := c.cfg.Machine.Network(ids[0])
	if err != nil {
		return nil // likewise
	}
	return network(interfaces, metav1.Now())
}

// volumeStats is a volume in upstream's form.
func volumeStats(namespace string, m podvolumes.Measured) statsapi.VolumeStats {
	v := statsapi.VolumeStats{Name: m.Name, FsStats: statsapi.FsStats{
		Time: metav1.NewTime(m.Time), AvailableBytes: m.AvailableBytes, CapacityBytes: m.CapacityBytes, UsedBytes: m.UsedBytes,
		InodesFree: m.InodesFree, Inodes: m.Inodes, InodesUsed: m.InodesUsed,
	}}
	if m.Claim != "" {
		v.PVCRef = &statsapi.PVCReference{Namespace: namespace, Name: m.Claim}
	}
	return v
}

// onDisk returns what one has of a filesystem's space, with what the filesystem has and
// has left, as upstream; nil: it is not known.
func onDisk(all map[string]statsapi.FsStats, key string, disk *statsapi.FsStats) *statsapi.FsStats {
	used, ok := all[key]
	if !ok {
		return nil
	}
	if disk != nil {
		used.CapacityBytes, used.AvailableBytes, used.Inodes, used.InodesFree = disk.CapacityBytes, disk.AvailableBytes, disk.Inodes, disk.InodesFree
	}
	return &used
}

// storage adds up what a pod has on the node's disk.
type storage struct {
	bytes, inodes uint64
	oldest        metav1.Time
	known         bool
}

func (s *storage) add(f *statsapi.FsStats) {
	if f == nil || f.UsedBytes == nil {
		return
	}
	s.bytes += *f.UsedBytes
	if f.InodesUsed != nil {
		s.inodes += *f.InodesUsed
	}
	if !s.known || f.Time.Before(&s.oldest) {
		s.oldest = f.Time
	}
	s.known = true
}

func (s *storage) stats(disk *statsapi.FsStats) *statsapi.FsStats {
	if !s.known {
		return nil
	}
	out := &statsapi.FsStats{Time: s.oldest, UsedBytes: &s.bytes, InodesUsed: &s.inodes}
	if disk != nil {
		out.CapacityBytes, out.AvailableBytes, out.Inodes, out.InodesFree = disk.CapacityBytes, disk.AvailableBytes, disk.Inodes, disk.InodesFree
	}
	return out
}
