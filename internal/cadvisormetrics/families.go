package cadvisormetrics

import (
	"strconv"

	"github.com/holdfast-dev/holdfast/internal/cgroupfs"
)

// family is one metric.
type family struct {
	name, kind, help string
	timeless         bool // its samples have no timestamp: they do not change
	write            func(*writer, *Group)
}

const (
	bytesUnit    = 1
	nanoseconds  = 1e9
	microseconds = 1e6
)

// families are all metrics of groups, by name.
var families = []family{
	counter("container_blkio_device_usage_total", "Bytes that were read from and written to the device", func(w *writer, g *Group) {
		for i := range g.Devices {
			d := &g.Devices[i]
			major, minor := strconv.FormatUint(uint64(d.IO.Major), 10), strconv.FormatUint(uint64(d.IO.Minor), 10)
			w.value(float64(d.IO.ReadBytes), "device", d.Name, "major", major, "minor", minor, "operation", "Read")
			w.value(float64(d.IO.WriteBytes), "device", d.Name, "major", major, "minor", minor, "operation", "Write")
		}
	}),
	counter("container_cpu_cfs_periods_total", "Periods of the processor quota that have passed", func(w *writer, g *Group) {
		w.quota(g, g.Details.Periods, 1)
	}),
	counter("container_cpu_cfs_throttled_periods_total", "Periods in which the processor quota was used up", func(w *writer, g *Group) {
		w.quota(g, g.Details.ThrottledPeriods, 1)
	}),
	counter("container_cpu_cfs_throttled_seconds_total", "Time that was waited for because the processor quota was used up, in seconds", func(w *writer, g *Group) {
		w.quota(g, g.Details.ThrottledTime, nanoseconds)
	}),
	counter("container_cpu_system_seconds_total", "Processor time that was used by the kernel, in core-seconds", func(w *writer, g *Group) {
		w.known(g.Details.SystemCPU, nanoseconds)
	}),
	counter("container_cpu_usage_seconds_total", "Processor time that was used, in core-seconds", func(w *writer, g *Group) {
		w.known(g.Reading.CPU, nanoseconds, "cpu", "total")
	}),
	counter("container_cpu_user_seconds_total", "Processor time that was used outside of the kernel, in core-seconds", func(w *writer, g *Group) {
		w.known(g.Details.UserCPU, nanoseconds)
	}),
	gauge("container_file_descriptors", "Files and the like that processes have open", func(w *writer, g *Group) {
		if g.Files != nil {
			w.value(float64(g.Files.Open))
		}
	}),
	gauge("container_fs_inodes_free", "Inodes of the filesystem that are left", func(w *writer, g *Group) {
		for i := range g.Disks {
			w.pointer(g.Disks[i].InodesUnused, "device", g.Disks[i].Device)
		}
	}),
	gauge("container_fs_inodes_total", "Inodes of the filesystem", func(w *writer, g *Group) {
		for i := range g.Disks {
			w.pointer(g.Disks[i].InodesTotal, "device", g.Disks[i].Device)
		}
	}),
	gauge("container_fs_io_current", "Requests that the device works on now", queueValue(func(q *Queue) float64 { return float64(q.Current) })),
	counter("container_fs_io_time_seconds_total", "Time in which the device worked, in seconds", queueValue(func(q *Queue) float64 { return q.Busy.Seconds() })),
	counter("container_fs_io_time_weighted_seconds_total", "Time in which the device worked, times its requests, in seconds", queueValue(func(q *Queue) float64 { return q.Weighted.Seconds() })),
	gauge("container_fs_limit_bytes", "Size of the filesystem in bytes", func(w *writer, g *Group) {
		for i := range g.Disks {
			w.pointer(g.Disks[i].Limit, "device", g.Disks[i].Device)
		}
	}),
	counter("container_fs_read_seconds_total", "Time that reads have taken, in seconds", queueValue(func(q *Queue) float64 { return q.ReadTime.Seconds() })),
	counter("container_fs_reads_bytes_total", "Bytes that were read from the device", deviceValue(func(d *cgroupfs.DeviceIO) uint64 { return d.ReadBytes })),
	counter("container_fs_reads_merged_total", "Reads that became part of others", queueValue(func(q *Queue) float64 { return float64(q.ReadsMerged) })),
	counter("container_fs_reads_total", "Reads from the device", deviceValue(func(d *cgroupfs.DeviceIO) uint64 { return d.Reads })),
	counter("container_fs_sector_reads_total", "Sectors of 512 bytes that were read", sectors(func(d *cgroupfs.DeviceIO) uint64 { return d.ReadBytes })),
	counter("container_fs_sector_writes_total", "Sectors of 512 bytes that were written", sectors(func(d *cgroupfs.DeviceIO) uint64 { return d.WriteBytes })),
	gauge("container_fs_usage_bytes", "Bytes of the filesystem that are used", func(w *writer, g *Group) {
		for i := range g.Disks {
			w.pointer(g.Disks[i].Used, "device", g.Disks[i].Device)
		}
	}),
	counter("container_fs_write_seconds_total", "Time that writes have taken, in seconds", queueValue(func(q *Queue) float64 { return q.WriteTime.Seconds() })),
	counter("container_fs_writes_bytes_total", "Bytes that were written to the device", deviceValue(func(d *cgroupfs.DeviceIO) uint64 { return d.WriteBytes })),
	counter("container_fs_writes_merged_total", "Writes that became part of others", queueValue(func(q *Queue) float64 { return float64(q.WritesMerged) })),
	counter("container_fs_writes_total", "Writes to the device", deviceValue(func(d *cgroupfs.DeviceIO) uint64 { return d.Writes })),
	gauge("container_last_seen", "When the figures were read, in seconds since 1970", func(w *writer, g *Group) { w.value(seconds(g.Reading.Time)) }),
	gauge("container_memory_cache", "Memory that holds pages of files, in bytes", func(w *writer, g *Group) { w.known(g.Details.Cache, bytesUnit) }),
	counter("container_memory_events_high_total", "How often it was slowed down for memory", func(w *writer, g *Group) { w.known(g.Details.HighHits, 1) }),
	counter("container_memory_events_max_total", "How often the limit of memory was reached", func(w *writer, g *Group) { w.known(g.Details.LimitHits, 1) }),
	counter("container_memory_failcnt", "How often the limit of memory was reached", func(w *writer, g *Group) { w.known(g.Details.LimitHits, 1) }),
	counter("container_memory_failures_total", "Page faults", func(w *writer, g *Group) {
		for _, scope := range g.scopes() {
			w.known(g.Reading.PageFaults, 1, "failure_type", "pgfault", "scope", scope)
			w.known(g.Reading.MajorPageFaults, 1, "failure_type", "pgmajfault", "scope", scope)
		}
	}),
	gauge("container_memory_kernel_usage", "Memory of the kernel for the group, in bytes", func(w *writer, g *Group) { w.known(g.Details.Kernel, bytesUnit) }),
	gauge("container_memory_mapped_file", "Memory that holds mapped files, in bytes", func(w *writer, g *Group) { w.known(g.Details.Mapped, bytesUnit) }),
	gauge("container_memory_max_usage_bytes", "The most memory that was used, in bytes", func(w *writer, g *Group) { w.known(g.Details.MaxMemory, bytesUnit) }),
	gauge("container_memory_rss", "Anonymous memory in bytes", func(w *writer, g *Group) { w.known(g.Reading.RSS, bytesUnit) }),
	gauge("container_memory_swap", "Swap that is used, in bytes", func(w *writer, g *Group) { w.known(g.Reading.Swap, bytesUnit) }),
	gauge("container_memory_usage_bytes", "Memory that is used, in bytes, with all pages of files", func(w *writer, g *Group) { w.known(g.Reading.Memory, bytesUnit) }),
	gauge("container_memory_working_set_bytes", "Memory that cannot be had back at once, in bytes", func(w *writer, g *Group) { w.known(g.Reading.WorkingSet, bytesUnit) }),
	counter("container_network_receive_bytes_total", "Bytes that were received", received(func(t *Traffic) uint64 { return t.Bytes })),
	counter("container_network_receive_errors_total", "Errors while receiving", received(func(t *Traffic) uint64 { return t.Errors })),
	counter("container_network_receive_packets_dropped_total", "Packets that were dropped while receiving", received(func(t *Traffic) uint64 { return t.Dropped })),
	counter("container_network_receive_packets_total", "Packets that were received", received(func(t *Traffic) uint64 { return t.Packets })),
	counter("container_network_transmit_bytes_total", "Bytes that were sent", sent(func(t *Traffic) uint64 { return t.Bytes })),
	counter("container_network_transmit_errors_total", "Errors while sending", sent(func(t *Traffic) uint64 { return t.Errors })),
	counter("container_network_transmit_packets_dropped_total", "Packets that were dropped while sending", sent(func(t *Traffic) uint64 { return t.Dropped })),
	counter("container_network_transmit_packets_total", "Packets that were sent", sent(func(t *Traffic) uint64 { return t.Packets })),
	counter("container_oom_events_total", "Processes that the kernel has ended for want of memory", func(w *writer, g *Group) { w.known(g.Details.OOMKills, 1) }),
	counter("container_pressure_cpu_stalled_seconds_total", "Time in which all tasks waited for a processor, in seconds", stalled(func(r *cgroupfs.Reading) *cgroupfs.Pressure { return &r.CPUPressure })),
	counter("container_pressure_cpu_waiting_seconds_total", "Time in which a task waited for a processor, in seconds", waiting(func(r *cgroupfs.Reading) *cgroupfs.Pressure { return &r.CPUPressure })),
	counter("container_pressure_io_stalled_seconds_total", "Time in which all tasks waited for disks, in seconds", stalled(func(r *cgroupfs.Reading) *cgroupfs.Pressure { return &r.IOPressure })),
	counter("container_pressure_io_waiting_seconds_total", "Time in which a task waited for disks, in seconds", waiting(func(r *cgroupfs.Reading) *cgroupfs.Pressure { return &r.IOPressure })),
	counter("container_pressure_memory_stalled_seconds_total", "Time in which all tasks waited for memory, in seconds", stalled(func(r *cgroupfs.Reading) *cgroupfs.Pressure { return &r.MemoryPressure })),
	counter("container_pressure_memory_waiting_seconds_total", "Time in which a task waited for memory, in seconds", waiting(func(r *cgroupfs.Reading) *cgroupfs.Pressure { return &r.MemoryPressure })),
	gauge("container_processes", "Processes", func(w *writer, g *Group) { w.known(g.Processes, 1) }),
	gauge("container_sockets", "Sockets that processes have open", func(w *writer, g *Group) {
		if g.Files != nil {
			w.value(float64(g.Files.Sockets))
		}
	}),
	fixed("container_spec_cpu_period", "Period of the processor quota in microseconds", func(w *writer, g *Group) { w.known(g.Details.Period, 1) }),
	fixed("container_spec_cpu_quota", "Processor time in a period, in microseconds", func(w *writer, g *Group) { w.known(g.Details.Quota, 1) }),
	fixed("container_spec_cpu_shares", "Weight against others for processors", func(w *writer, g *Group) { w.known(g.Details.Shares, 1) }),
	fixed("container_spec_memory_limit_bytes", "Memory that may be used, in bytes; 0: there is no limit", func(w *writer, g *Group) {
		if g.Reading.Memory.Known {
			w.value(limit(g.Reading.MemoryLimit))
		}
	}),
	fixed("container_spec_memory_reservation_limit_bytes", "Memory that is kept for it, in bytes", func(w *writer, g *Group) {
		if g.Reading.Memory.Known {
			w.value(limit(g.Details.MemoryKept))
		}
	}),
	fixed("container_spec_memory_swap_limit_bytes", "Swap that may be used, in bytes; 0: there is no limit", func(w *writer, g *Group) {
		if g.Reading.Swap.Known {
			w.value(limit(g.Reading.SwapLimit))
		}
	}),
	fixed("container_start_time_seconds", "When it was started, in seconds since 1970", func(w *writer, g *Group) {
		if g.Start.Unix() > 0 {
			w.value(seconds(g.Start))
		}
	}),
	gauge("container_threads", "Processes and threads", func(w *writer, g *Group) { w.known(g.Reading.Tasks, 1) }),
	gauge("container_threads_max", "Processes and threads that there may be; 0: there is no limit", func(w *writer, g *Group) {
		if g.Reading.Tasks.Known {
			w.value(limit(g.Details.TaskLimit))
		}
	}),
	gauge("container_ulimits_soft", "What its first process may have of something", func(w *writer, g *Group) {
		if g.Files != nil {
			w.pointer(g.Files.Limit, "ulimit", "max_open_files")
		}
	}),
}

// scopes are those of its page faults, which are counted with the groups below. A container
// has none below.
func (g *Group) scopes() []string {
	if g.Container == "" {
		return []string{"hierarchy"}
	}
	return []string{"container", "hierarchy"}
}

func counter(name, help string, write func(*writer, *Group)) family {
	return family{name: name, kind: "counter", help: help, write: write}
}

func gauge(name, help string, write func(*writer, *Group)) family {
	return family{name: name, kind: "gauge", help: help, write: write}
}

// fixed is a gauge without timestamps, of what was set and not measured.
func fixed(name, help string, write func(*writer, *Group)) family {
	return family{name: name, kind: "gauge", help: help, timeless: true, write: write}
}

// quota writes a figure of groups that have a quota.
func (w *writer) quota(g *Group, v cgroupfs.Value, unit float64) {
	if g.Details.Quota.Known {
		w.known(v, unit)
	}
}

func deviceValue(of func(*cgroupfs.DeviceIO) uint64) func(*writer, *Group) {
	return func(w *writer, g *Group) {
		for i := range g.Devices {
			w.value(float64(of(&g.Devices[i].IO)), "device", g.Devices[i].Name)
		}
	}
}

func queueValue(of func(*Queue) float64) func(*writer, *Group) {
	return func(w *writer, g *Group) {
		for i := range g.Devices {
			if q := g.Devices[i].Queue; q != nil {
				w.value(of(q), "device", g.Devices[i].Name)
			}
		}
	}
}

// sectors is a figure of devices whose queue is known, as cAdvisor has it.
func sectors(of func(*cgroupfs.DeviceIO) uint64) func(*writer, *Group) {
	return func(w *writer, g *Group) {
		for i := range g.Devices {
			if d := &g.Devices[i]; d.Queue != nil {
				w.value(float64(of(&d.IO)/512), "device", d.Name)
			}
		}
	}
}

func received(of func(*Traffic) uint64) func(*writer, *Group) {
	return func(w *writer, g *Group) {
		for i := range g.Network {
			w.value(float64(of(&g.Network[i].Received)), "interface", g.Network[i].Name)
		}
	}
}

func sent(of func(*Traffic) uint64) func(*writer, *Group) {
	return func(w *writer, g *Group) {
		for i := range g.Network {
			w.value(float64(of(&g.Network[i].Sent)), "interface", g.Network[i].Name)
		}
	}
}

func stalled(of func(*cgroupfs.Reading) *cgroupfs.Pressure) func(*writer, *Group) {
	return func(w *writer, g *Group) {
		if p := of(&g.Reading); p.Known {
			w.value(float64(p.Full.Total) / microseconds)
		}
	}
}

func waiting(of func(*cgroupfs.Reading) *cgroupfs.Pressure) func(*writer, *Group) {
	return func(w *writer, g *Group) {
		if p := of(&g.Reading); p.Known {
			w.value(float64(p.Some.Total) / microseconds)
		}
	}
}
