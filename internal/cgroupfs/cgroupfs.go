// Package cgroupfs reads what control groups use: processor time, memory, swap,
// processes and pressure, from cgroup v1, v2, or both side by side, in one form.
//
// A value that the kernel does not offer is not known, which is not 0. Memory is
// counted as cAdvisor counts it, so that the figures are those that people know.
// Reading a group allocates nothing, as a node has hundreds and is asked for them
// every few seconds.
//
// The package reads the cgroup filesystems, /proc/pressure and, once, how they are
// mounted. It may be used by any goroutine.
package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
)

// A Value is a number, if it is known.
type Value struct {
	N     uint64
	Known bool
}

// Pointer returns the number, nil if it is not known.
func (v Value) Pointer() *uint64 {
	if !v.Known {
		return nil
	}
	return &v.N
}

// A Reading is what one group used at one time.
type Reading struct {
	Time time.Time

	CPU Value // nanoseconds of all processors together, since the group was made

	Memory          Value // bytes, file pages that could be had back among them
	WorkingSet      Value // bytes that cannot be had back at once
	RSS             Value // bytes of anonymous memory
	MemoryLimit     Value // bytes; not known where there is none
	PageFaults      Value
	MajorPageFaults Value

	Swap      Value // bytes
	SwapLimit Value // bytes; not known where there is none

	Tasks Value // processes and threads

	CPUPressure, MemoryPressure, IOPressure Pressure
}

// A Pressure says how long tasks waited for something (PSI), if that is known.
type Pressure struct {
	Known bool
	Some  Waits // at least one task waited
	Full  Waits // all did
}

// Waits are parts of the last ten, sixty and three hundred seconds in percent, and
// microseconds in all.
type Waits struct {
	Avg10, Avg60, Avg300 float64
	Total                uint64
}

// noLimit is above every limit that somebody sets: v1 prints a number of about 2^63
// where there is none.
const noLimit = 1 << 62

// A Tree is the machine's control groups. A group is named by its path below the
// mount points, such as /kubepods/pod1234; "/" is the whole machine.
type Tree struct {
	unified  bool              // v2 alone
	dirs     map[string]string // mount point by v1 controller, or "" for the v2 hierarchy
	pressure string            // the machine's own
	scratch  sync.Pool
}

const root = "/sys/fs/cgroup" // where every distribution has them

// New finds how the cgroup filesystems are mounted.
func New() (*Tree, error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return newTree(true, map[string]string{"": root}), nil
	}
	mounts, err := cgroups.GetCgroupMounts(true)
	if err != nil {
		return nil, fmt.Errorf("find cgroup filesystems: %w", err)
	}
	dirs := map[string]string{}
	for _, mount := range mounts {
		for _, controller := range mount.Subsystems {
			if _, seen := dirs[controller]; !seen {
				dirs[controller] = mount.Mountpoint
			}
		}
	}
	if cgroups.IsCgroup2HybridMode() {
		dirs[""] = filepath.Join(root, "unified")
	}
	if len(dirs) == 0 {
		return nil, errors.New("no cgroup filesystem is mounted")
	}
	return newTree(false, dirs), nil
}

func newTree(unified bool, dirs map[string]string) *Tree {
	t := &Tree{unified: unified, dirs: dirs, pressure: "/proc/pressure"}
	t.scratch.New = func() any { return &scratch{data: make([]byte, 16<<10)} }
	return t
}

// V2 reports whether the machine has cgroup v2 alone.
func (t *Tree) V2() bool { return t.unified }

// Read reads all of a group into r. A group that is not there is an error that is
// fs.ErrNotExist.
func (t *Tree) Read(group string, r *Reading) error { return t.read(group, r, true) }

// ReadUsage is Read without pressure, swap and tasks.
func (t *Tree) ReadUsage(group string, r *Reading) error { return t.read(group, r, false) }

func (t *Tree) read(group string, r *Reading, all bool) error {
	s := t.scratch.Get().(*scratch)
	defer t.scratch.Put(s)
	*r = Reading{Time: time.Now()}
	if t.unified {
		t.readV2(s, group, r, all)
	} else {
		t.readV1(s, group, r, all)
	}
	if !r.CPU.Known && !r.Memory.Known && !r.WorkingSet.Known && !r.Tasks.Known {
		return fmt.Errorf("read cgroup %s: %w", group, fs.ErrNotExist)
	}
	return nil
}

func (t *Tree) readV1(s *scratch, group string, r *Reading, all bool) {
	r.CPU = s.number(t.dirs["cpuacct"], group, "cpuacct.usage")
	r.Memory = s.number(t.dirs["memory"], group, "memory.usage_in_bytes")
	if stat := s.file(t.dirs["memory"], group, "memory.stat"); stat != nil {
		values := s.stat(stat, v1Names)
		r.setWorkingSet(values[0])
		r.RSS, r.PageFaults, r.MajorPageFaults = values[1], values[2], values[3]
		r.MemoryLimit = bounded(values[4])
		if all {
			r.Swap = values[5]
			if limit := bounded(values[6]); limit.Known && r.MemoryLimit.Known && limit.N >= r.MemoryLimit.N {
				r.SwapLimit = Value{limit.N - r.MemoryLimit.N, true} // the kernel's is of both together
			}
		}
	}
	if all {
		r.Tasks = s.number(t.dirs["pids"], group, "pids.current")
		t.readPressure(s, group, r)
	}
}

func (t *Tree) readV2(s *scratch, group string, r *Reading, all bool) {
	dir := t.dirs[""]
	if stat := s.file(dir, group, "cpu.stat"); stat != nil {
		if usec := s.stat(stat, v2CPUNames)[0]; usec.Known {
			r.CPU = Value{usec.N * 1000, true}
		}
	}
	r.Memory = s.number(dir, group, "memory.current")
	r.MemoryLimit = bounded(s.number(dir, group, "memory.max"))
	if stat := s.file(dir, group, "memory.stat"); stat != nil {
		values := s.stat(stat, v2Names)
		r.setWorkingSet(values[0])
		r.RSS, r.PageFaults, r.MajorPageFaults = values[1], values[2], values[3]
	}
	if all {
		r.Swap = s.number(dir, group, "memory.swap.current")
		r.SwapLimit = bounded(s.number(dir, group, "memory.swap.max"))
		r.Tasks = s.number(dir, group, "pids.current")
		t.readPressure(s, group, r)
	}
}

// readPressure reads pressure, which only v2's hierarchy has, on a hybrid machine
// too, and /proc for the machine as a whole.
func (t *Tree) readPressure(s *scratch, group string, r *Reading) {
	if group == "/" {
		r.CPUPressure = parsePressure(s.file(t.pressure, "", "cpu"))
		r.MemoryPressure = parsePressure(s.file(t.pressure, "", "memory"))
		r.IOPressure = parsePressure(s.file(t.pressure, "", "io"))
		return
	}
	dir := t.dirs[""]
	r.CPUPressure = parsePressure(s.file(dir, group, "cpu.pressure"))
	r.MemoryPressure = parsePressure(s.file(dir, group, "memory.pressure"))
	r.IOPressure = parsePressure(s.file(dir, group, "io.pressure"))
}

func (r *Reading) setWorkingSet(inactive Value) {
	if r.Memory.Known && inactive.Known {
		r.WorkingSet = Value{r.Memory.N - min(inactive.N, r.Memory.N), true}
	}
}

func bounded(v Value) Value {
	if v.N >= noLimit {
		return Value{}
	}
	return v
}

// Processes returns the processes that are directly in a group, not in those below it.
func (t *Tree) Processes(group string) ([]int, error) {
	dir := t.dirs[""]
	if !t.unified {
		dir = t.dirs["memory"]
	}
	s := t.scratch.Get().(*scratch)
	defer t.scratch.Put(s)
	ids, ok := s.numbers(dir, group, "cgroup.procs")
	if !ok {
		return nil, fmt.Errorf("read processes of cgroup %s: %w", group, fs.ErrNotExist)
	}
	return ids, nil
}
