package stats

import (
	"context"
	"errors"
	"io/fs"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/cgroupfs"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// collect reads everything.
func (c *Collector) collect(ctx context.Context) *Collection {
	c.failed = false
	before := c.cpu
	c.cpu = make(map[string]cpuReading, len(before))
	pods := c.cfg.Pods()
	s := &statsapi.Summary{Node: c.node(ctx, before), Pods: make([]statsapi.PodStats, 0, len(pods))}
	made := &Collection{Summary: s, Volumes: make([][]podvolumes.Measured, 0, len(pods)), pods: make([]source, 0, len(pods)), layers: c.images[1].path}
	c.askLayers(ctx)
	counting, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	for _, pod := range pods {
		status, err := c.cfg.Statuses.Get(pod.UID)
		if err != nil {
			status = nil // the runtime's trouble is told by who asks it
		}
		measured := c.cfg.Volumes.Volumes(pod)
		s.Pods = append(s.Pods, c.pod(counting, before, pod, status, measured, s.Node.Fs))
		made.Volumes = append(made.Volumes, measured)
		made.pods = append(made.pods, source{pod, status})
	}
	made.Failed = c.failed
	return made
}

// node reads what the machine uses.
func (c *Collector) node(ctx context.Context, before map[string]cpuReading) statsapi.NodeStats {
	now := metav1.Now()
	node := statsapi.NodeStats{NodeName: c.cfg.Node}
	free, err := c.cfg.Machine.Free()
	if c.note("machine", err) {
		node.Memory, node.Rlimit, node.Swap = free.Memory, free.Rlimit, free.Swap
		if node.Rlimit != nil {
			node.Rlimit.Time = now
		}
		if node.Swap != nil {
			node.Swap.Time = now
		}
	}
	if err := c.cfg.Groups.Read("/", &c.reading); c.note("cgroup of the machine", err) {
		r := &c.reading
		node.CPU = c.cpuStats("/", r, before)
		if own := memoryStats(r); own != nil {
			// What is available is the machine's; the rest is counted by the group.
			if node.Memory != nil {
				own.AvailableBytes, own.WorkingSetBytes = node.Memory.AvailableBytes, node.Memory.WorkingSetBytes
			}
			node.Memory = own
		}
		node.IO = ioStats(r)
	}
	if node.Memory != nil {
		node.Memory.Time = now
	}
	if interfaces, err := c.cfg.Machine.Network(0); c.note("network", err) {
		node.Network = network(interfaces, now)
	}
	if disk, _, err := c.cfg.Machine.Filesystem(c.cfg.Dir); c.note("filesystem of the node", err) {
		disk.Time = now
		node.Fs = withUsed(&disk)
	}
	if c.boot.IsZero() {
		boot, err := c.cfg.Machine.BootTime()
		c.note("start of the machine", err)
		c.boot = boot
	}
	node.StartTime = metav1.NewTime(c.boot)
	node.Runtime = c.disks(ctx, now)
	node.SystemContainers = c.systemContainers(ctx, before, node.StartTime)
	return node
}

// disks asks the runtime where images and layers are, and the machine how full that is.
func (c *Collector) disks(ctx context.Context, now metav1.Time) *statsapi.RuntimeStats {
	asking, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	answer, err := c.cfg.Runtime.ImageFS(asking)
	if c.note("filesystem of images", err) {
		for i, list := range [][]*runtimeapi.FilesystemUsage{answer.GetImageFilesystems(), answer.GetContainerFilesystems()} {
			if len(list) > 0 {
				c.images[i] = disk{list[0].GetFsId().GetMountpoint(), number(list[0].GetUsedBytes()), number(list[0].GetInodesUsed())}
			} else if i > 0 {
				c.images[i] = c.images[0] // a runtime of before they were told apart
			}
		}
	}
	var all [2]*statsapi.FsStats
	for i, d := range c.images {
		if d.path == "" {
			continue
		}
		space, _, err := c.cfg.Machine.Filesystem(d.path)
		if !c.note(d.path, err) {
			continue
		}
		space.Time, space.UsedBytes, space.InodesUsed = now, d.used, d.inodes
		all[i] = &space
	}
	if all[0] == nil && all[1] == nil {
		return nil
	}
	return &statsapi.RuntimeStats{ImageFs: all[0], ContainerFs: all[1]}
}

// askLayers asks the runtime for writable layers. If it does not answer, those that
// are known stay, with their time.
func (c *Collector) askLayers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	list, err := c.cfg.Runtime.ContainerStats(ctx)
	if !c.note("writable layers", err) {
		return
	}
	clear(c.layers)
	for _, s := range list {
		layer := s.GetWritableLayer()
		if layer.GetUsedBytes() == nil || layer.GetTimestamp() <= 0 {
			continue
		}
		c.layers[s.GetAttributes().GetId()] = statsapi.FsStats{
			Time: metav1.Unix(0, layer.GetTimestamp()), UsedBytes: number(layer.GetUsedBytes()), InodesUsed: number(layer.GetInodesUsed()),
		}
	}
}

// note reports whether something could be read. It counts what could not, and logs it
// once.
func (c *Collector) note(what string, err error) bool {
	before, failed := c.unread[what]
	switch {
	case err == nil && failed:
		delete(c.unread, what)
		c.cfg.Log.Info("figures are there again", "object", what)
	case err != nil:
		c.failed = true
		c.errors.WithLabelValues(what).Inc()
		if err.Error() != before {
			c.unread[what] = err.Error()
			c.cfg.Log.Warn("figures cannot be read and are left out", "object", what, "err", err)
		}
	}
	return err == nil
}

// noteGroup is note for a group that need not be there.
func (c *Collector) noteGroup(what string, err error) bool {
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return c.note(what, err)
}

// cpuStats has the rate since the collection before; none if there was none, or the
// group is another one of the same name.
func (c *Collector) cpuStats(group string, r *cgroupfs.Reading, before map[string]cpuReading) *statsapi.CPUStats {
	if !r.CPU.Known {
		return nil
	}
	now := cpuReading{r.Time, r.CPU.N}
	c.cpu[group] = now
	last, ok := before[group]
	if !ok {
		last = cpuReading{}
	}
	return &statsapi.CPUStats{
		Time: metav1.NewTime(r.Time), UsageCoreNanoSeconds: pointer(r.CPU), UsageNanoCores: rate(last, now), PSI: psi(r.CPUPressure),
	}
}

// rate returns nanoseconds a second between two readings; nil: it is not known.
func rate(last, now cpuReading) *uint64 {
	took := now.at.Sub(last.at)
	if last.at.IsZero() || took <= 0 || now.nanos < last.nanos {
		return nil
	}
	r := uint64(float64(now.nanos-last.nanos) / took.Seconds())
	return &r
}

func memoryStats(r *cgroupfs.Reading) *statsapi.MemoryStats {
	if !r.Memory.Known && !r.RSS.Known {
		return nil
	}
	m := &statsapi.MemoryStats{
		Time: metav1.NewTime(r.Time), UsageBytes: pointer(r.Memory), WorkingSetBytes: pointer(r.WorkingSet), RSSBytes: pointer(r.RSS),
		PageFaults: pointer(r.PageFaults), MajorPageFaults: pointer(r.MajorPageFaults), PSI: psi(r.MemoryPressure),
	}
	if r.MemoryLimit.Known && r.WorkingSet.Known {
		left := r.MemoryLimit.N - min(r.WorkingSet.N, r.MemoryLimit.N)
		m.AvailableBytes = &left
	}
	return m
}

func swapStats(r *cgroupfs.Reading) *statsapi.SwapStats {
	if !r.Swap.Known {
		return nil
	}
	s := &statsapi.SwapStats{Time: metav1.NewTime(r.Time), SwapUsageBytes: pointer(r.Swap)}
	if r.SwapLimit.Known {
		left := r.SwapLimit.N - min(r.Swap.N, r.SwapLimit.N)
		s.SwapAvailableBytes = &left
	}
	return s
}

func ioStats(r *cgroupfs.Reading) *statsapi.IOStats {
	if !r.IOPressure.Known {
		return nil
	}
	return &statsapi.IOStats{Time: metav1.NewTime(r.Time), PSI: psi(r.IOPressure)}
}

// psi has the kernel's microseconds as total, as upstream's kubelet, whatever its type
// says.
func psi(p cgroupfs.Pressure) *statsapi.PSIStats {
	if !p.Known {
		return nil
	}
	data := func(w cgroupfs.Waits) statsapi.PSIData {
		return statsapi.PSIData{Total: w.Total, Avg10: w.Avg10, Avg60: w.Avg60, Avg300: w.Avg300}
	}
	return &statsapi.PSIStats{Some: data(p.Some), Full: data(p.Full)}
}

// pointer copies a value out of a reading, which is used again.
func pointer(v cgroupfs.Value) *uint64 {
	if !v.Known {
		return nil
	}
	n := v.N
	return &n
}

func number(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	n := v.GetValue()
	return &n
}

// network has the first interface as the whole's, as upstream: that of the default
// route has the name eth0 in pods.
func network(interfaces []statsapi.InterfaceStats, at metav1.Time) *statsapi.NetworkStats {
	if len(interfaces) == 0 {
		return nil
	}
	n := &statsapi.NetworkStats{Time: at, Interfaces: interfaces, InterfaceStats: interfaces[0]}
	for _, i := range interfaces {
		if i.Name == "eth0" {
			n.InterfaceStats = i
		}
	}
	return n
}

// withUsed adds what is used to what a filesystem has and has left.
func withUsed(disk *statsapi.FsStats) *statsapi.FsStats {
	if disk.CapacityBytes != nil && disk.AvailableBytes != nil {
		used := *disk.CapacityBytes - min(*disk.AvailableBytes, *disk.CapacityBytes)
		disk.UsedBytes = &used
	}
	if disk.Inodes != nil && *disk.Inodes == 0 {
		disk.Inodes, disk.InodesFree = nil, nil // it gives them out as it needs them
	}
	if disk.Inodes != nil && disk.InodesFree != nil {
		used := *disk.Inodes - min(*disk.InodesFree, *disk.Inodes)
		disk.InodesUsed = &used
	}
	return disk
}

// sinceStart keeps a start that is not known out of the answer.
func sinceStart(t time.Time) metav1.Time {
	if t.Unix() <= 0 {
		return metav1.Time{}
	}
	return metav1.NewTime(t)
}

// isHostNetwork reports whether a pod has the machine's network, whose figures are the
// node's.
func isHostNetwork(pod *v1.Pod) bool { return pod.Spec.HostNetwork }
