package podcgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// withUsage writes the readings of a group into a tree of plain files.
func withUsage(t *testing.T, dir string, readings map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range readings {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUsage(t *testing.T) {
	const group = "hf/kubepods/besteffort/podu1"
	v2, v1Memory, v1Pids := t.TempDir(), t.TempDir(), t.TempDir()
	withUsage(t, filepath.Join(v2, group), map[string]string{
		"memory.current": "1000", "memory.stat": "anon 5\ninactive_file 300\ninactive_file_x 7", "pids.current": "12",
	})
	withUsage(t, filepath.Join(v1Memory, group), map[string]string{
		"memory.usage_in_bytes": "1000", "memory.stat": "inactive_file 1\ntotal_inactive_file 300",
	})
	withUsage(t, filepath.Join(v1Pids, group), map[string]string{"pids.current": "12"})
	for name, tree := range map[string]tree{
		"v2": {unified: true, dirs: map[string]string{"": v2}},
		"v1": {dirs: map[string]string{"memory": v1Memory, "pids": v1Pids}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := newManager(Config{Parent: "hf"}, tree)
			if err != nil {
				t.Fatal(err)
			}
			memory, processes, err := m.Usage("u1")
			if err != nil || memory != 700 || processes != 12 {
				t.Errorf("memory %d, processes %d, %v; want 700, 12", memory, processes, err)
			}
			if _, _, err := m.Usage("u2"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a pod without a group: %v", err)
			}
			if _, _, err := m.Usage("../u1"); err == nil {
				t.Error("a UID that leads out was taken")
			}
			if all, err := m.WorkingSet(); err != nil || all != 0 {
				t.Errorf("before the first pod: %d, %v", all, err)
			}
		})
	}
}

// TestUsageIsNotGuessed holds that a reading that is missing or makes no sense
// is an error.
func TestUsageIsNotGuessed(t *testing.T) {
	for name, broken := range map[string]map[string]string{
		"no statistics":      {"memory.current": "1000", "pids.current": "1"},
		"no such line":       {"memory.current": "1000", "memory.stat": "anon 1", "pids.current": "1"},
		"no number":          {"memory.current": "max", "memory.stat": "inactive_file 1", "pids.current": "1"},
		"a line's no number": {"memory.current": "1", "memory.stat": "inactive_file x", "pids.current": "1"},
		"no processes":       {"memory.current": "1", "memory.stat": "inactive_file 1"},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			withUsage(t, filepath.Join(top, "kubepods", "podu1"), broken)
			m, err := newManager(Config{}, tree{unified: true, dirs: map[string]string{"": top}})
			if err != nil {
				t.Fatal(err)
			}
			if memory, processes, err := m.Usage("u1"); err == nil {
				t.Errorf("memory %d, processes %d without an error", memory, processes)
			}
		})
	}
}

func TestRealUsage(t *testing.T) {
	testenv.Need(t, "root")
	m, err := New(Config{Parent: "/holdfast-usage-" + strconv.Itoa(os.Getpid()), PidsLimit: 50})
	if err != nil {
		t.Skipf("no cgroups: %v", err)
	}
	t.Cleanup(func() {
		if err := m.RemoveAll(); err != nil {
			t.Error(err)
		}
	})
	if _, err := m.Ensure(podWith("e", nothing)); err != nil {
		t.Fatal(err)
	}
	if _, processes, err := m.Usage("e"); err != nil || processes != 0 {
		t.Errorf("%d processes in an empty group, %v", processes, err)
	}
	process := sleepIn(t, m, "/kubepods/besteffort/pode")
	memory, processes, err := m.Usage("e")
	end(t, process)
	if err != nil || processes != 1 {
		t.Errorf("%d processes, %v; want 1", processes, err)
	}
	if all, err := m.WorkingSet(); err != nil || all > 1<<30 || memory > 1<<30 {
		t.Errorf("a working set of %d of %d, %v", memory, all, err)
	}
}
