package podcgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// root is where every distribution mounts the cgroup filesystems.
const root = "/sys/fs/cgroup"

// A tree is the machine's cgroup filesystems. Groups are named by their path
// below the mount points.
type tree struct {
	unified bool              // v2 alone
	dirs    map[string]string // mount point by controller: v1 names, or "" for the v2 hierarchy
}

// detect reads which hierarchies are mounted. On a hybrid host the v2
// hierarchy has no controllers, but runtimes make groups there too, so it
// belongs to the tree.
func detect() (tree, error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return tree{unified: true, dirs: map[string]string{"": root}}, nil
	}
	mounts, err := cgroups.GetCgroupMounts(true)
	if err != nil {
		return tree{}, err
	}
	t := tree{dirs: map[string]string{}}
	for _, mount := range mounts {
		for _, controller := range mount.Subsystems {
			if _, seen := t.dirs[controller]; !seen {
				t.dirs[controller] = mount.Mountpoint
			}
		}
	}
	if cgroups.IsCgroup2HybridMode() {
		t.dirs[""] = filepath.Join(root, "unified")
	}
	return t, nil
}

// mounts returns each mount point once: controllers may share one.
func (t tree) mounts() []string {
	var all []string
	for _, dir := range t.dirs {
		all = append(all, dir)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// make makes a group, with those above it, in every hierarchy.
func (t tree) make(group string) error {
	for _, mount := range t.mounts() {
		if !t.unified && mount == t.dirs[""] {
			continue // hybrid: nothing to limit there; only its removal matters
		}
		dir := mount
		for part := range strings.SplitSeq(strings.Trim(group, "/"), "/") {
			if t.unified {
				if err := delegate(dir); err != nil {
					return err
				}
			}
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if !t.unified && mount == t.dirs["cpuset"] {
				if err := inheritCPUSet(parent, dir); err != nil {
					return err
				}
			}
		}
		if t.unified {
			if err := delegate(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// inheritCPUSet fills a new v1 cpuset group: an empty one accepts no process.
func inheritCPUSet(parent, dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		have, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if len(bytes.TrimSpace(have)) > 0 {
			continue
		}
		value, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return err
		}
		if err := write(dir, name, string(bytes.TrimSpace(value))); err != nil {
			return err
		}
	}
	return nil
}

// delegate hands all of a v2 group's controllers down to the groups below it.
func delegate(dir string) error {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	on, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	enabled := strings.Fields(string(on))
	for controller := range strings.FieldsSeq(string(have)) {
		if slices.Contains(enabled, controller) {
			continue
		}
		// One at a time: a controller that cannot be handed down (cpu, while
		// a real-time process runs) must not keep the others from it.
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		if err != nil && slices.Contains([]string{"cpu", "memory", "pids"}, controller) {
			return fmt.Errorf("hand down controller %s: %w", controller, err)
		}
	}
	return nil
}

// set writes the limits of a pod's group.
func (t tree) set(group string, l limits) error {
	if err := t.setShares(group, cpuShares(l.milliCPU)); err != nil {
		return err
	}
	if t.unified {
		return t.setV2(group, l)
	}
	return t.setV1(group, l)
}

// setShares writes a group's CPU weight, given as v1 shares.
func (t tree) setShares(group string, shares int64) error {
	if t.unified {
		return t.write("", group, "cpu.weight", number(cpuWeight(shares)))
	}
	return t.write("cpu", group, "cpu.shares", number(shares))
}

// bound limits the memory, in bytes, and the processes of a group; 0: no limit.
func (t tree) bound(group string, memory, pids int64) error {
	if t.unified {
		return errors.Join(t.write("", group, "memory.max", orElse(memory, "max")), t.write("", group, "pids.max", orElse(pids, "max")))
	}
	return errors.Join(t.write("memory", group, "memory.limit_in_bytes", orElse(memory, "-1")), t.write("pids", group, "pids.max", orElse(pids, "max")))
}

func (t tree) setV1(group string, l limits) error {
	return errors.Join(
		t.write("cpu", group, "cpu.cfs_period_us", number(quotaPeriod)),
		t.write("cpu", group, "cpu.cfs_quota_us", orElse(l.quota, "-1")),
		t.write("memory", group, "memory.limit_in_bytes", orElse(l.memory, "-1")),
		t.write("pids", group, "pids.max", orElse(l.pids, "max")),
		t.setHugePages("hugetlb", group, ".limit_in_bytes", l.hugePages),
	)
}

func (t tree) setV2(group string, l limits) error {
	return errors.Join(
		t.write("", group, "cpu.max", fmt.Sprintf("%s %d", orElse(l.quota, "max"), quotaPeriod)),
		t.write("", group, "memory.max", orElse(l.memory, "max")),
		t.write("", group, "pids.max", orElse(l.pids, "max")),
		t.setHugePages("", group, ".max", l.hugePages),
	)
}

// setHugePages limits every page size the kernel has: to what the pod asked
// for, and to nothing where it did not ask.
func (t tree) setHugePages(controller, group, suffix string, want map[string]int64) error {
	mount, ok := t.dirs[controller]
	if !ok {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(mount, group, "hugetlb.*"+suffix))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		name := filepath.Base(file)
		size := strings.TrimSuffix(strings.TrimPrefix(name, "hugetlb."), suffix)
		if strings.Contains(size, ".") {
			continue // hugetlb.2MB.rsvd.max and the like
		}
		errs = append(errs, t.write(controller, group, name, number(want[size])))
	}
	return errors.Join(errs...)
}

// write sets one value of a group, if the machine has the controller and the
// value differs.
func (t tree) write(controller, group, name, value string) error {
	mount, ok := t.dirs[controller]
	if !ok {
		return nil
	}
	dir := filepath.Join(mount, group)
	have, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && t.unified {
			if _, statErr := os.Stat(dir); statErr == nil {
				return nil // a v2 host without that controller
			}
		}
		return err
	}
	if same(string(bytes.TrimSpace(have)), value) {
		return nil
	}
	return write(dir, name, value)
}

// same compares a value as the kernel prints it with one as we write it: no
// memory limit is written -1 and printed as the largest number of whole pages.
func same(have, want string) bool {
	if have == want {
		return true
	}
	if want != "-1" {
		return false
	}
	n, err := strconv.ParseInt(have, 10, 64)
	return err == nil && n > 1<<62
}

func write(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %q: %w", value, err)
	}
	return nil
}

// remove removes a group and the empty groups below it from every hierarchy,
// going on past what is busy.
func (t tree) remove(group string) error {
	var errs []error
	for _, mount := range t.mounts() {
		errs = append(errs, removeDir(filepath.Join(mount, group)))
	}
	return errors.Join(errs...)
}

// removeDir removes groups from the bottom up. A cgroup's files are no files:
// rmdir alone removes a group, and it fails while the group has processes.
func removeDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.IsDir() {
			errs = append(errs, removeDir(filepath.Join(dir, entry.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	switch err := unix.Rmdir(dir); {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%s: %w", dir, ErrBusy)
	case err != nil && !errors.Is(err, unix.ENOENT):
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// processes returns the processes in a group and the groups below it, each once and
// in order. Those of another PID namespace, which have no number here, are left out.
func (t tree) processes(group string) ([]int, error) {
	var pids []int
	for _, mount := range t.mounts() {
		err := filepath.WalkDir(filepath.Join(mount, group), func(name string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) { // gone, whole or meanwhile
				return nil
			} else if err != nil || entry.Name() != "cgroup.procs" {
				return err
			}
			data, err := os.ReadFile(name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
				return err
			}
			for line := range strings.FieldsSeq(string(data)) {
				if pid, err := strconv.Atoi(line); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// children returns the names of the groups directly below a group, in any
// hierarchy, with repetitions.
func (t tree) children(group string) ([]string, error) {
	var names []string
	for _, mount := range t.mounts() {
		entries, err := os.ReadDir(filepath.Join(mount, group))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if entry.IsDir() {
				names = append(names, entry.Name())
			}
		}
	}
	return names, nil
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// orElse writes a limit; zero is none.
func orElse(n int64, none string) string {
	if n == 0 {
		return none
	}
	return number(n)
}

// kernelSize writes a page size as the kernel names it: 2MB, 1GB, 64KB.
func kernelSize(size int64) string {
	const kib = 1 << 10
	units := []string{"B", "KB", "MB", "GB"}
	i := 0
	for size >= kib && size%kib == 0 && i < len(units)-1 {
		size /= kib
		i++
	}
	return number(size) + units[i]
}
