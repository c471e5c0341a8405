package cgroupfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// fake makes a tree of files: dirs are controllers, as in New.
func fake(t *testing.T, unified bool, controllers []string, files map[string]string) *Tree {
	t.Helper()
	top := t.TempDir()
	dirs := map[string]string{}
	for _, c := range controllers {
		dirs[c] = filepath.Join(top, "mount"+c)
	}
	for name, content := range files {
		path := filepath.Join(top, "mount"+name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree := newTree(unified, dirs)
	tree.pressure = filepath.Join(top, "mountproc")
	return tree
}

const pressure = "some avg10=1.50 avg60=0.25 avg300=0.00 total=1234\nfull avg10=0.05 avg60=0.00 avg300=100.00 total=99\n"

func known(n uint64) Value { return Value{n, true} }

func TestRead(t *testing.T) {
	wantPressure := Pressure{Known: true, Some: Waits{1.5, 0.25, 0, 1234}, Full: Waits{0.05, 0, 100, 99}}
	v1 := []string{"cpuacct", "memory", "pids"}
	v1Files := map[string]string{
		"cpuacct/g/cpuacct.usage":        "5000000000\n",
		"memory/g/memory.usage_in_bytes": "1000000\n",
		"memory/g/memory.stat": "cache 1\nrss 2\ninactive_file 3\nhierarchical_memory_limit 2000000\nhierarchical_memsw_limit 5000000\n" +
			"total_rss 400000\ntotal_swap 70\ntotal_pgfault 8\ntotal_pgmajfault 9\ntotal_inactive_file 100000\n",
		"pids/g/pids.current": "12\n",
	}
	for name, test := range map[string]struct {
		unified     bool
		controllers []string
		files       map[string]string
		group       string
		want        Reading
	}{
		"v1": {false, v1, v1Files, "/g", Reading{
			CPU: known(5e9), Memory: known(1e6), WorkingSet: known(900_000), RSS: known(400_000), MemoryLimit: known(2e6),
			PageFaults: known(8), MajorPageFaults: known(9), Swap: known(70), SwapLimit: known(3e6), Tasks: known(12),
		}},
		"hybrid, with pressure in v2": {false, append(v1, ""), join(v1Files, map[string]string{"/g/cpu.pressure": pressure}), "/g", Reading{
			CPU: known(5e9), Memory: known(1e6), WorkingSet: known(900_000), RSS: known(400_000), MemoryLimit: known(2e6),
			PageFaults: known(8), MajorPageFaults: known(9), Swap: known(70), SwapLimit: known(3e6), Tasks: known(12), CPUPressure: wantPressure,
		}},
		"v1 without limits, and more inactive than used": {false, v1, map[string]string{
			"memory/g/memory.usage_in_bytes": "10\n",
			"memory/g/memory.stat":           "hierarchical_memory_limit 9223372036854771712\nhierarchical_memsw_limit 9223372036854771712\ntotal_inactive_file 20\n",
		}, "/g", Reading{Memory: known(10), WorkingSet: known(0)}},
		"v2": {true, []string{""}, map[string]string{
			"/g/cpu.stat": "usage_usec 7\nuser_usec 3\n", "/g/memory.current": "1000\n", "/g/memory.max": "2000\n",
			"/g/memory.stat":         "anon 300\nfile 5\ninactive_file 100\npgfault 4\npgmajfault 1\n",
			"/g/memory.swap.current": "0\n", "/g/memory.swap.max": "max\n", "/g/pids.current": "2\n",
			"/g/cpu.pressure": pressure, "/g/memory.pressure": pressure, "/g/io.pressure": pressure,
		}, "/g", Reading{
			CPU: known(7000), Memory: known(1000), WorkingSet: known(900), RSS: known(300), MemoryLimit: known(2000), PageFaults: known(4), MajorPageFaults: known(1),
			Swap: known(0), Tasks: known(2), CPUPressure: wantPressure, MemoryPressure: wantPressure, IOPressure: wantPressure,
		}},
		"v2, the machine": {true, []string{""}, map[string]string{
			"/cpu.stat": "usage_usec 7\n", "proc/cpu": "some avg10=1.50 avg60=0.25 avg300=0.00 total=1234\n", "proc/io": pressure,
		}, "/", Reading{CPU: known(7000), CPUPressure: Pressure{Known: true, Some: wantPressure.Some}, IOPressure: wantPressure}},
	} {
		t.Run(name, func(t *testing.T) {
			var got Reading
			if err := fake(t, test.unified, test.controllers, test.files).Read(test.group, &got); err != nil {
				t.Fatal(err)
			}
			if got.Time.IsZero() {
				t.Error("no time")
			}
			if diff := cmp.Diff(got, test.want, cmpopts.IgnoreFields(Reading{}, "Time")); diff != "" {
				t.Errorf("reading (-got +want):\n%s", diff)
			}
		})
	}
}

func join(a, b map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range []map[string]string{a, b} {
		maps.Copy(all, m)
	}
	return all
}

func TestPointer(t *testing.T) {
	if (Value{}).Pointer() != nil {
		t.Error("what is not known has a number")
	}
	if p := known(0).Pointer(); p == nil || *p != 0 {
		t.Error("a zero that is known is not there")
	}
}

func TestMissing(t *testing.T) {
	tree := fake(t, true, []string{""}, map[string]string{"/cpu.stat": ""})
	var r Reading
	if err := tree.Read("/none", &r); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/none") {
		t.Errorf("Read: %v, want that /none is not there", err)
	}
	if _, err := tree.Processes("/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Processes: %v", err)
	}
}

func TestProcesses(t *testing.T) {
	tree := fake(t, true, []string{""}, map[string]string{"/g/cgroup.procs": strings.Repeat("123456\n", 10_000), "/e/cgroup.procs": ""})
	for group, want := range map[string]int{"/g": 10_000, "/e": 0} {
		if got, err := tree.Processes(group); err != nil || len(got) != want || want > 0 && got[want-1] != 123456 {
			t.Errorf("%s: %d, %v; want %d", group, len(got), err, want)
		}
	}
}

// TestThisMachine reads a group that a process works in.
func TestThisMachine(t *testing.T) {
	testenv.Need(t, "root")
	tree, err := New()
	if err != nil {
		t.Fatal(err)
	}
	var machine Reading
	if err := tree.Read("/", &machine); err != nil {
		t.Fatal(err)
	}
	if !machine.CPU.Known || machine.CPU.N == 0 {
		t.Errorf("the machine has used no processor: %+v", machine)
	}
	if tree.V2() {
		for _, controller := range []string{"+memory", "+pids"} { // as a node does for its own groups
			if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte(controller), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	group := fmt.Sprintf("/holdfast-cgroupfs-test-%d", os.Getpid())
	var dirs []string
	for controller, dir := range tree.dirs {
		if controller == "cpuacct" || controller == "memory" || controller == "pids" || controller == "" {
			dirs = append(dirs, dir+group)
		}
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	}
	// It spins, says so, and waits for its input's end.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "read go; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done; read end || true")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprint(cmd.Process.Pid)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	var r Reading // of which the kernel brings the parts of memory.stat up to date later
	if err := tree.Read(group, &r); err != nil {
		t.Fatal(err)
	}
	var d Details
	if err := tree.ReadDetails(group, &d); err != nil {
		t.Fatal(err)
	}
	if !d.Cache.Known || !d.Mapped.Known || !d.LimitHits.Known || !d.OOMKills.Known || d.TaskLimit.Known || d.Quota.Known || !tree.V2() && d.UserCPU.N+d.SystemCPU.N == 0 {
		t.Errorf("a process that spun, without limits: %+v", d)
	}
	processes, err := tree.Processes(group)
	if err != nil || len(processes) != 1 || processes[0] != cmd.Process.Pid {
		t.Errorf("processes %v, %v; want %d", processes, err, cmd.Process.Pid)
	}
	if r.CPU.N == 0 || r.Memory.N == 0 || !r.WorkingSet.Known || !r.RSS.Known || !r.PageFaults.Known || r.Tasks.N != 1 || r.MemoryLimit.Known {
		t.Errorf("a process that spun has used %+v", r)
	}
	if tree.V2() && !r.CPUPressure.Known {
		t.Error("no pressure")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	tree := fake(t, true, []string{""}, map[string]string{
		"/g/cpu.stat": "usage_usec 7\n", "/g/memory.current": "1000\n", "/g/memory.stat": "anon 300\ninactive_file 100\n", "/g/cpu.pressure": pressure,
	})
	var r Reading
	s := tree.scratch.Get().(*scratch) // which under the race detector a pool forgets at random
	allocs := testing.AllocsPerRun(100, func() {
		if tree.readV2(s, "/g", &r, true); !r.CPUPressure.Known {
			t.Fatal("nothing was read")
		}
	})
	if allocs >= 1 {
		t.Errorf("%v allocations a reading", allocs)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(pressure))
	f.Add([]byte("18446744073709551615\n"))
	f.Add([]byte("18446744073709551616"))
	f.Add([]byte("anon 5\n\nanon x\nanon\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if n := parseNumber(data); n.Known && fmt.Sprint(n.N) != string(bytes.TrimLeft(bytes.TrimSpace(data), "0")) && n.N != 0 {
			t.Errorf("%q is %d", data, n.N)
		}
		var values [4]Value
		parseStat(data, v2Names, values[:])
		if p := parsePressure(data); !p.Known && p != (Pressure{}) {
			t.Errorf("pressure that is not known: %+v", p)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	tree, err := New()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var r Reading
	for b.Loop() {
		if err := tree.Read("/", &r); err != nil {
			b.Fatal(err)
		}
	}
}
