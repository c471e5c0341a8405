package podcgroup

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// TestBound holds that all pods together get limits, and lose them when they are to
// have none.
func TestBound(t *testing.T) {
	for name, test := range map[string]struct {
		before, memory, pids int64
		wantMemory, wantPIDs string
	}{
		"limited":     {0, 1 << 30, 1000, "1073741824", "1000"},
		"not limited": {7, 0, 0, "max", "max"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := fakeV2(t, "/hf", "/hf/kubepods", "/hf/kubepods/burstable", "/hf/kubepods/besteffort")
			if err := fake.bound("/hf/kubepods", test.before, test.before); err != nil {
				t.Fatal(err)
			}
			m, err := newManager(Config{Parent: "hf", AllMemory: test.memory, AllPIDs: test.pids}, fake)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Bound(); err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{"memory.max": test.wantMemory, "pids.max": test.wantPIDs} {
				if got := fake.value(t, "", "/hf/kubepods", name); !strings.HasPrefix(got, want) {
					t.Errorf("%s: got %s, want %s", name, got, want)
				}
			}
		})
	}
}

// TestBoundOfThisMachine does that with the kernel's own files.
func TestBoundOfThisMachine(t *testing.T) {
	testenv.Need(t, "root")
	cfg := Config{Parent: "/holdfast-bound-" + number(int64(os.Getpid())), AllMemory: 256 << 20, AllPIDs: 1000}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.RemoveAll(); err != nil {
			t.Error(err)
		}
	})
	file, none := "memory.limit_in_bytes", "9223372036854771712"
	if m.V2() {
		file, none = "memory.max", "max"
	}
	limit := func(want string) {
		t.Helper()
		controller := "memory"
		if m.V2() {
			controller = ""
		}
		if got := m.tree.value(t, controller, m.AllPods(), file); got != want {
			t.Errorf("%s: got %s, want %s", file, got, want)
		}
	}
	if err := m.Bound(); err != nil {
		t.Fatal(err)
	}
	limit("268435456")
	m.cfg.AllMemory, m.cfg.AllPIDs = 0, 0
	if err := m.Bound(); err != nil {
		t.Fatal(err)
	}
	limit(none)
}
