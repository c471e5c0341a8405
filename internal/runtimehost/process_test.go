package runtimehost

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// behaviour is set in the environment of a process that child starts.
const behaviour = "HOLDFAST_TEST_CHILD"

// What such a process does.
const (
	waits    = "waits"    // until its input closes
	stubborn = "stubborn" // the same, whatever SIGTERM says
	ends     = "ends"     // at once
)

// behave is the program of child's processes: this one, so that no shell has a
// say in their arguments. It says when it is ready.
func behave(how string) {
	if how == stubborn {
		signal.Ignore(syscall.SIGTERM)
	}
	_, _ = os.Stdout.WriteString("ready")
	_ = os.Stdout.Close()
	if how != ends {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}

// child starts a process with the given arguments, whose name need not be that
// of the program. It ends with the test process at the latest: its input closes.
func child(t *testing.T, how string, argv ...string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, said, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	started, err := os.StartProcess(program, argv, &os.ProcAttr{
		Env:   append(os.Environ(), behaviour+"="+how),
		Files: []*os.File{in, said, os.Stderr},
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := hold(started.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.close() // the test may have
		// While it is our child, the number is nobody else's.
		if pid, err := syscall.Wait4(started.Pid, nil, syscall.WNOHANG, nil); pid == 0 && err == nil {
			_ = syscall.Kill(started.Pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(started.Pid, nil, 0, nil)
		}
		_ = in.Close()
		_ = open.Close()
	})
	_ = said.Close() // ours: the child's is the last
	defer func() { _ = out.Close() }()
	if word, err := io.ReadAll(out); string(word) != "ready" || err != nil {
		t.Fatalf("the child said %q, %v", word, err)
	}
	return p
}

func TestFindContainerd(t *testing.T) {
	cfg := sampleConfig()
	cfg.RootDir = t.TempDir()
	child(t, waits, "/usr/bin/containerd", "--config", "/etc/containerd/config.toml") // another's
	child(t, waits, "/bin/vi", "--config", cfg.configFile())                          // another program
	child(t, waits, "containerd-shim-runc-v2", "-address", cfg.socket()+".other")
	ours := child(t, waits, "/any/containerd", "--config", cfg.configFile())
	shim := child(t, waits, "/any/containerd-shim-runc-v2", "-address", cfg.socket())

	pids := func(find func() ([]*process, error)) []int {
		t.Helper()
		found, err := find()
		if err != nil {
			t.Fatal(err)
		}
		var pids []int
		for _, p := range found {
			pids = append(pids, p.pid)
			if err := p.close(); err != nil {
				t.Error(err)
			}
		}
		return pids
	}
	if diff := cmp.Diff(pids(cfg.findContainerd), []int{ours.pid}); diff != "" {
		t.Errorf("containerd (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(pids(cfg.findShims), []int{shim.pid}); diff != "" {
		t.Errorf("shims (-got +want):\n%s", diff)
	}
}

func TestStop(t *testing.T) {
	t.Run("ends when asked", func(t *testing.T) {
		p := child(t, waits, "child")
		if err := p.stop(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("is killed when it does not", func(t *testing.T) {
		p := child(t, stubborn, "child")
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // no time left
		if err := p.stop(ctx, time.Minute); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("has ended", func(t *testing.T) {
		p := child(t, ends, "child")
		if err := p.wait(); err != nil {
			t.Fatal(err)
		}
		if err := p.stop(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWaitEndsOnClose(t *testing.T) {
	p := child(t, waits, "child")
	waited := make(chan error, 1)
	go func() { waited <- p.wait() }()
	select {
	case err := <-waited:
		t.Fatalf("wait returned %v while the process runs", err)
	case <-time.After(10 * time.Millisecond): // it waits, or has not begun: both must end
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err == nil {
		t.Error("wait said that the process had ended")
	}
}

func TestParseStat(t *testing.T) {
	for _, tc := range []struct {
		name, stat, state string
		parent            int
		ok                bool
	}{
		{"plain", "12 (sh) S 7 12 12", "S", 7, true},
		{"spaces and parentheses", "12 (a) R 1 (b)) Z 7 12", "Z", 7, true},
		{"cut", "12 (sh) S", "", 0, false},
		{"empty", "", "", 0, false},
	} {
		state, parent, ok := parseStat(tc.stat)
		if ok != tc.ok || ok && (state != tc.state || parent != tc.parent) {
			t.Errorf("%s: got %q, %d, %v", tc.name, state, parent, ok)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("12 (sh) S 7 12 12")
	f.Fuzz(func(_ *testing.T, stat string) { parseStat(stat) })
}

func TestUnready(t *testing.T) {
	reported := func(runtime, network bool) *runtimeapi.RuntimeStatus {
		return &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: runtime},
			{Type: runtimeapi.NetworkReady, Status: network, Reason: "NoConfig"},
			{Type: "ContainerdHasNoDeprecationWarnings", Status: false},
		}}
	}
	if err := unready(reported(true, true)); err != nil {
		t.Error(err)
	}
	for _, s := range []*runtimeapi.RuntimeStatus{nil, reported(false, true), reported(true, false)} {
		if unready(s) == nil {
			t.Errorf("%v is taken for ready", s)
		}
	}
}
