package podcgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// Usage returns the working set of a pod's group in bytes, and how many
// processes and threads are in it. A pod without a group is an error that is
// fs.ErrNotExist.
func (m *Manager) Usage(uid types.UID) (workingSet, processes uint64, err error) {
	if err := validUID(uid); err != nil {
		return 0, 0, err
	}
	for _, parent := range m.classGroups() {
		group := path.Join(parent, podPrefix+string(uid))
		if workingSet, err = m.tree.workingSet(group); err != nil {
			continue
		}
		processes, err = m.tree.number("pids", group, "pids.current")
		return workingSet, processes, err
	}
	return 0, 0, fmt.Errorf("read the cgroup of pod %s: %w", uid, err)
}

// WorkingSet returns the working set of all pods together, in bytes: 0 before
// the first one.
func (m *Manager) WorkingSet() (uint64, error) {
	n, err := m.tree.workingSet(m.podsGroup())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return n, err
}

// workingSet is what of a group's memory cannot be had back at once: all but the
// file pages that were not used lately, as cAdvisor computes it.
func (t tree) workingSet(group string) (uint64, error) {
	used, inactive := "memory.usage_in_bytes", "total_inactive_file"
	if t.unified {
		used, inactive = "memory.current", "inactive_file"
	}
	all, err := t.number("memory", group, used)
	if err != nil {
		return 0, err
	}
	file, err := t.file("memory", group, "memory.stat")
	if err != nil {
		return 0, err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	idle, ok := statValue(content, inactive)
	if !ok {
		return 0, fmt.Errorf("%s has no %s", file, inactive)
	}
	return all - min(idle, all), nil
}

// statValue finds one value of a file with lines "name value".
func statValue(content []byte, name string) (uint64, bool) {
	for line := range bytes.Lines(content) {
		if text, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// number reads one number of a group.
func (t tree) number(controller, group, name string) (uint64, error) {
	file, err := t.file(controller, group, name)
	if err != nil {
		return 0, err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(content)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	return n, nil
}

// file returns where a value of a group is.
func (t tree) file(controller, group, name string) (string, error) {
	if t.unified {
		controller = ""
	}
	mount, ok := t.dirs[controller]
	if !ok {
		return "", fmt.Errorf("this machine has no cgroup controller %s", controller)
	}
	return filepath.Join(mount, group, name), nil
}
