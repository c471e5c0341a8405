package hoststats

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/cadvisormetrics"
)

const (
	processStatText   = "42 (a (b) c) S 1 42 42 0 -1 4194560 1500 7 3 0 250 50 9 9 20 0 12 0 500 1000 2000 18446744073709551615 0\n"
	processStatusText = "Name:\ta (b) c\nVmPeak:\t 9999 kB\nVmRSS:\t  2048 kB\nRssAnon:\t 1024 kB\nVmSwap:\t    4 kB\n"
)

func TestProcess(t *testing.T) {
	host := fakeHost(t, map[string]string{
		"proc/stat": "btime 1700000000\n", "proc/42/stat": processStatText, "proc/42/status": processStatusText,
		"proc/43/stat": processStatText, "proc/43/status": "Name:\tzombie\n",
		"proc/44/stat": "44 (short) S 1\n", "proc/44/status": processStatusText,
	})
	got, err := host.Process(42)
	if err != nil {
		t.Fatal(err)
	}
	if n := *got.CPU.UsageCoreNanoSeconds; n != 3e9 {
		t.Errorf("300 ticks are %d ns, want 3 s", n)
	}
	if at := got.StartTime.Unix(); at != 1_700_000_005 {
		t.Errorf("started at %d, want 500 ticks after the machine", at)
	}
	m := got.Memory
	if *m.UsageBytes != 2<<20 || *m.WorkingSetBytes != 2<<20 || *m.RSSBytes != 1<<20 || *m.PageFaults != 1500 || *m.MajorPageFaults != 3 || *got.Swap.SwapUsageBytes != 4096 {
		t.Errorf("memory %+v, swap %+v", m, got.Swap)
	}
	for process, want := range map[int]string{43: "has ended", 44: "too few fields", 45: "no such file"} {
		if _, err := host.Process(process); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("process %d: %v, want %q", process, err, want)
		}
	}
}

func TestOwnProcess(t *testing.T) {
	got, err := New("/").Process(0)
	if err != nil {
		t.Fatal(err)
	}
	if *got.Memory.RSSBytes < 1<<20 || *got.Memory.WorkingSetBytes < *got.Memory.RSSBytes || got.StartTime.After(time.Now()) || *got.Memory.PageFaults == 0 {
		t.Errorf("our own process: %+v", got.Memory)
	}
}

func TestFiles(t *testing.T) {
	host := fakeHost(t, map[string]string{
		"proc/42/fd/.keep": "", "proc/42/limits": "Limit   Soft Limit  Hard Limit  Units\nMax cpu time  unlimited  unlimited  seconds\nMax open files  1024  4096  files\n",
		"proc/43/fd/0": "", "proc/43/limits": "Max open files  unlimited  unlimited  files\n",
	})
	dir := filepath.Join(host.root, "proc/42/fd")
	for name, to := range map[string]string{"0": "/dev/null", "1": "socket:[123]", "2": "socket:[124]"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, ".keep")); err != nil {
		t.Fatal(err)
	}
	for process, want := range map[int]cadvisormetrics.Files{42: {Open: 3, Sockets: 2, Limit: new(uint64(1024))}, 43: {Open: 1}} {
		got, err := host.Files(process)
		if diff := cmp.Diff(got, want); err != nil || diff != "" {
			t.Errorf("process %d: %v (-got +want):\n%s", process, err, diff)
		}
	}
	if _, err := host.Files(44); err == nil {
		t.Error("a process that is gone has files")
	}
	if got, err := New("/").Files(os.Getpid()); err != nil || got.Open == 0 || got.Limit == nil {
		t.Errorf("our own process: %+v, %v", got, err)
	}
}

func TestListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	host := New("/")
	if _, err := host.Listener(t.Context(), path); err == nil {
		t.Error("nobody listens and somebody was found")
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	if got, err := host.Listener(t.Context(), path); err != nil || got != os.Getpid() {
		t.Errorf("got %d, %v, want our own %d", got, err, os.Getpid())
	}
}

// FuzzParseStat holds that a program's name, which it chooses, changes nothing.
func FuzzParseStat(f *testing.F) {
	f.Add("a (b) c", " 1 2 3")
	f.Add(") S 1 1 1 1 1 1 9 9 9 9", "")
	f.Fuzz(func(t *testing.T, name, more string) {
		_, fields, _ := strings.Cut(processStatText, ") c)")
		got, err := parseStat("42 (" + name + ")" + fields)
		if want := (processStat{faults: 1500, majorFaults: 3, busy: 300, started: 500}); err != nil || got != want {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
		if _, err := parseStat(more); err == nil && !strings.Contains(more, ")") {
			t.Errorf("%q has no name and is taken", more)
		}
	})
}
