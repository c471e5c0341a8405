package cgroupfs

import (
	"bytes"
	"fmt"
	"io/fs"
)

// Details is what one group has used and may use, beyond a Reading.
type Details struct {
	UserCPU, SystemCPU Value // nanoseconds, of which Reading.CPU is made

	// Of a group with a quota: how many periods there were, in how many it had used
	// the quota up, and the nanoseconds for which it waited then.
	Periods, ThrottledPeriods, ThrottledTime Value

	Cache, Mapped, Kernel Value // bytes of files, of mapped files, of the kernel's own
	MaxMemory             Value // bytes, the most that Reading.Memory has been
	LimitHits             Value // how often the memory limit was reached
	HighHits              Value // how often the group was slowed down for memory; v2 alone
	MemoryKept            Value // bytes that are not taken from the group; not known where there are none
	OOMKills              Value // processes that the kernel has ended for want of memory

	Shares    Value // weight in v1's unit, also on v2
	Quota     Value // microseconds of processor time in a period; not known where there is no limit
	Period    Value // microseconds
	TaskLimit Value // not known where there is none

	Devices []DeviceIO // in the kernel's order
}

// DeviceIO is what a group has read from and written to a block device.
type DeviceIO struct {
	Major, Minor          uint32
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
}

// The names that ReadDetails reads of files with lines "name value".
var (
	v1DetailNames    = []string{"total_cache", "total_mapped_file"}
	v2DetailNames    = []string{"file", "file_mapped", "kernel"}
	v1ThrottleNames  = []string{"nr_periods", "nr_throttled", "throttled_time"}
	v2CPUDetailNames = []string{"nr_periods", "nr_throttled", "throttled_usec", "user_usec", "system_usec"}
	v1OOMNames       = []string{"oom_kill"}
	v2EventNames     = []string{"oom_kill", "max", "high"}
)

// ReadDetails reads the details of a group into d. It is for who is asked for them, not
// for every few seconds. A group that is not there is an error that is fs.ErrNotExist.
func (t *Tree) ReadDetails(group string, d *Details) error {
	s := t.scratch.Get().(*scratch)
	defer t.scratch.Put(s)
	*d = Details{Devices: d.Devices[:0]}
	if t.unified {
		t.detailsV2(s, group, d)
	} else {
		t.detailsV1(s, group, d)
	}
	if !d.UserCPU.Known && !d.Cache.Known && !d.Shares.Known {
		return fmt.Errorf("read details of cgroup %s: %w", group, fs.ErrNotExist)
	}
	return nil
}

func (t *Tree) detailsV1(s *scratch, group string, d *Details) {
	cpu, memory, io := t.dirs["cpu"], t.dirs["memory"], t.dirs["blkio"]
	d.UserCPU = s.number(t.dirs["cpuacct"], group, "cpuacct.usage_user")
	d.SystemCPU = s.number(t.dirs["cpuacct"], group, "cpuacct.usage_sys")
	d.Shares = s.number(cpu, group, "cpu.shares")
	d.Quota = s.number(cpu, group, "cpu.cfs_quota_us") // -1, which is no limit, is no number
	d.Period = s.number(cpu, group, "cpu.cfs_period_us")
	if stat := s.file(cpu, group, "cpu.stat"); stat != nil {
		values := s.stat(stat, v1ThrottleNames)
		d.Periods, d.ThrottledPeriods, d.ThrottledTime = values[0], values[1], values[2]
	}
	if stat := s.file(memory, group, "memory.stat"); stat != nil {
		values := s.stat(stat, v1DetailNames)
		d.Cache, d.Mapped = values[0], values[1]
	}
	d.Kernel = s.number(memory, group, "memory.kmem.usage_in_bytes")
	d.MaxMemory = s.number(memory, group, "memory.max_usage_in_bytes")
	d.LimitHits = s.number(memory, group, "memory.failcnt")
	d.MemoryKept = bounded(s.number(memory, group, "memory.soft_limit_in_bytes"))
	if control := s.file(memory, group, "memory.oom_control"); control != nil {
		d.OOMKills = s.stat(control, v1OOMNames)[0]
	}
	d.TaskLimit = s.number(t.dirs["pids"], group, "pids.max")
	d.Devices = parseV1IO(s.file(io, group, "blkio.throttle.io_service_bytes_recursive"), d.Devices, func(dev *DeviceIO) (read, written *uint64) {
		return &dev.ReadBytes, &dev.WriteBytes
	})
	d.Devices = parseV1IO(s.file(io, group, "blkio.throttle.io_serviced_recursive"), d.Devices, func(dev *DeviceIO) (read, written *uint64) {
		return &dev.Reads, &dev.Writes
	})
}

func (t *Tree) detailsV2(s *scratch, group string, d *Details) {
	dir := t.dirs[""]
	if stat := s.file(dir, group, "cpu.stat"); stat != nil {
		values := s.stat(stat, v2CPUDetailNames)
		d.Periods, d.ThrottledPeriods = values[0], values[1]
		d.ThrottledTime, d.UserCPU, d.SystemCPU = thousand(values[2]), thousand(values[3]), thousand(values[4])
	}
	if weight := s.number(dir, group, "cpu.weight"); weight.Known && weight.N > 0 {
		// The inverse of how shares become a weight, as cAdvisor computes it.
		d.Shares = Value{2 + (weight.N-1)*262142/9999, true}
	}
	if quota, period, ok := bytes.Cut(s.file(dir, group, "cpu.max"), []byte{' '}); ok {
		d.Quota, d.Period = parseNumber(quota), parseNumber(period) // "max" is no number
	}
	if stat := s.file(dir, group, "memory.stat"); stat != nil {
		values := s.stat(stat, v2DetailNames)
		d.Cache, d.Mapped, d.Kernel = values[0], values[1], values[2]
	}
	d.MaxMemory = s.number(dir, group, "memory.peak")
	d.MemoryKept = s.number(dir, group, "memory.min")
	if events := s.file(dir, group, "memory.events"); events != nil {
		values := s.stat(events, v2EventNames)
		d.OOMKills, d.LimitHits, d.HighHits = values[0], values[1], values[2]
	}
	d.TaskLimit = s.number(dir, group, "pids.max")
	d.Devices = parseV2IO(s.file(dir, group, "io.stat"), d.Devices)
}

func thousand(v Value) Value { return Value{v.N * 1000, v.Known} }

// deviceOf returns the entry of the device that text names, as "8:0", and adds it if it
// is new; nil if that is no device.
func deviceOf(text []byte, all []DeviceIO) ([]DeviceIO, *DeviceIO) {
	first, second, ok := bytes.Cut(text, []byte{':'})
	major, minor := parseNumber(first), parseNumber(second)
	if !ok || !major.Known || !minor.Known || major.N >= 1<<32 || minor.N >= 1<<32 {
		return all, nil
	}
	for i := range all {
		if uint64(all[i].Major) == major.N && uint64(all[i].Minor) == minor.N {
			return all, &all[i]
		}
	}
	all = append(all, DeviceIO{Major: uint32(major.N), Minor: uint32(minor.N)})
	return all, &all[len(all)-1]
}

// parseV1IO reads lines "8:0 Read 4096" into what field names of each device.
func parseV1IO(data []byte, all []DeviceIO, field func(*DeviceIO) (read, written *uint64)) []DeviceIO {
	for line := range bytes.Lines(data) {
		words := bytes.Fields(line)
		if len(words) != 3 {
			continue // the total of all
		}
		var dev *DeviceIO
		if all, dev = deviceOf(words[0], all); dev == nil {
			continue
		}
		read, written := field(dev)
		switch string(words[1]) {
		case "Read":
			*read = parseNumber(words[2]).N
		case "Write":
			*written = parseNumber(words[2]).N
		}
	}
	return all
}

// parseV2IO reads lines "8:0 rbytes=1 wbytes=2 rios=3 wios=4 …".
func parseV2IO(data []byte, all []DeviceIO) []DeviceIO {
	for line := range bytes.Lines(data) {
		words := bytes.Fields(line)
		if len(words) < 2 {
			continue
		}
		var dev *DeviceIO
		if all, dev = deviceOf(words[0], all); dev == nil {
			continue
		}
		for _, word := range words[1:] {
			name, value, _ := bytes.Cut(word, []byte{'='})
			n := parseNumber(value).N
			switch string(name) {
			case "rbytes":
				dev.ReadBytes = n
			case "wbytes":
				dev.WriteBytes = n
			case "rios":
				dev.Reads = n
			case "wios":
				dev.Writes = n
			}
		}
	}
	return all
}
