package runtimehost

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/mounttree"
)

// A pod of a handler runs under that handler's program, its sandbox and
// container alike, and beside pods of the default one.
func TestHandlers(t *testing.T) {
	cfg := testConfig(t, "handlers")
	// The bundled runc, by a script that takes note of each call.
	note := filepath.Join(t.TempDir(), "note")
	other := filepath.Join(t.TempDir(), "other-runc")
	script := fmt.Sprintf("#!/bin/sh\necho \"$@\" >>%s\nexec %s \"$@\"\n", note, cfg.program("runc"))
	if err := os.WriteFile(other, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.Handlers = []Handler{{Name: "other", Binary: other}, {Name: "absent", Shim: "/nowhere/containerd-shim-absent-v1"}}
	h, stop := run(t, cfg)
	n := dial(t, h)
	got, err := n.Status(t.Context(), &runtimeapi.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	handlers := map[string]bool{} // and whether they can do recursive read-only mounts
	for _, handler := range got.GetRuntimeHandlers() {
		handlers[handler.GetName()] = handler.GetFeatures().GetRecursiveReadOnlyMounts()
	}
	if diff := cmp.Diff(handlers, map[string]bool{"": true, "runc": true, "other": true, "absent": false}); diff != "" {
		t.Errorf("handlers (-got +want):\n%s", diff)
	}

	n.handler = "other"
	sandbox, container, _ := n.pod("web", nil, "sleep", "forever")
	n.running(t, container)
	if _, err := n.exec(container, "/demo", "cat", "/proc/self/status"); err != nil {
		t.Error(err)
	}
	calls, err := os.ReadFile(note)
	if err != nil || !strings.Contains(string(calls), sandbox) || !strings.Contains(string(calls), container) {
		t.Errorf("the handler's program was not asked for both: %v\n%s", err, calls)
	}
	n.handler = ""
	_, plain, _ := n.pod("plain", nil, "sleep", "forever")
	if calls, err := os.ReadFile(note); err != nil || strings.Contains(string(calls), plain) {
		t.Errorf("the handler's program was asked for a pod of the default handler: %v\n%s", err, calls)
	}

	// A node that has the handler no more keeps its pods, and can end them.
	stop()
	cfg.Handlers = nil
	h, stop = run(t, cfg)
	defer stop()
	n = dial(t, h)
	n.running(t, container)
	n.removePod(sandbox)
	n.running(t, plain)
}

func TestLife(t *testing.T) {
	cfg := testConfig(t, "life")
	before := traces(t, cfg)
	h, stop := run(t, cfg)
	n := dial(t, h)
	sandbox, web, ip := n.pod("web", []*runtimeapi.PortMapping{{ContainerPort: 8080, HostPort: 38080}}, "serve")
	clientPod, client, _ := n.pod("client", nil, "sleep", "forever")

	t.Run("node reaches pod", func(t *testing.T) {
		if got := get(t, "http://"+ip+":8080/"); !strings.Contains(got, "hello from web") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("addresses", func(t *testing.T) {
		if addr := netip.MustParseAddr(ip); !cfg.Subnet.Contains(addr) || addr == h.net().Gateway() {
			t.Errorf("pod address %s, subnet %s", ip, cfg.Subnet)
		}
		routes, err := n.exec(client, "/demo", "cat", "/proc/net/route")
		if err != nil || !strings.Contains(routes, "eth0\t00000000") {
			t.Errorf("routes of the pod: %q, %v", routes, err)
		}
	})
	t.Run("pod reaches pod and node", func(t *testing.T) {
		var lc net.ListenConfig
		listener, err := lc.Listen(t.Context(), "tcp", net.JoinHostPort(h.net().Gateway().String(), "0"))
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.Listener = listener
		server.Start()
		defer server.Close()
		if got, err := n.exec(client, "/demo", "get", "http://"+ip+":8080/"); err != nil || !strings.Contains(got, "hello from web") {
			t.Errorf("the other pod: got %q, %v", got, err)
		}
		if _, err := n.exec(client, "/demo", "get", server.URL); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("the node: got %v, want its answer 404", err)
		}
	})
	t.Run("host port", func(t *testing.T) {
		if got := get(t, "http://127.0.0.1:38080/"); !strings.Contains(got, "hello from web") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("killed containerd comes back", func(t *testing.T) {
		old := containerdPID(t, cfg)
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		n.running(t, web)
		if got := containerdPID(t, cfg); got == old {
			t.Errorf("containerd is still process %d", got)
		}
	})
	t.Run("adopted", func(t *testing.T) {
		old := containerdPID(t, cfg)
		stop()
		n.running(t, web)
		h, stop = run(t, cfg)
		if got := containerdPID(t, cfg); got != old {
			t.Errorf("containerd: got process %d, want %d", got, old)
		}
	})
	t.Run("replaced when its configuration changed", func(t *testing.T) {
		old := containerdPID(t, cfg)
		stop()
		moved := cfg
		moved.RuntimeDir = filepath.Join(t.TempDir(), "runtime")
		if err := os.Symlink(cfg.RuntimeDir, moved.RuntimeDir); err != nil {
			t.Fatal(err)
		}
		_, stopMoved := run(t, moved)
		if got := containerdPID(t, cfg); got == old {
			t.Errorf("containerd is still process %d", got)
		}
		n.running(t, web)
		stopMoved()
		h, stop = run(t, cfg)
	})
	t.Run("images are not imported again", func(t *testing.T) {
		stop()
		var said []string
		quiet := cfg
		quiet.Progress = func(s string) { said = append(said, s) }
		_, stopQuiet := run(t, quiet)
		stopQuiet()
		if said != nil {
			t.Errorf("a warm start said %q", said)
		}
		h, stop = run(t, cfg)
	})
	t.Run("process 1 heeds SIGTERM", func(t *testing.T) {
		if _, err := n.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: client, Timeout: 60}); err != nil {
			t.Fatal(err)
		}
		resp, err := n.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: client})
		if err != nil || resp.GetStatus().GetExitCode() != 0 {
			t.Errorf("got exit code %d, %v", resp.GetStatus().GetExitCode(), err)
		}
		n.removePod(clientPod)
		n.pod("last", nil, "sleep", "forever")
	})
	t.Run("a pod is removed", func(t *testing.T) {
		n.removePod(sandbox)
		cache, err := filepath.Glob(filepath.Join(cniCache, "*"))
		if err != nil || len(cache) != 1 { // the last one's
			t.Errorf("network cache: got %v, %v", cache, err)
		}
	})
	stop()
	// One pod still runs: Remove ends it.
	if _, err := New(cfg).Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(traces(t, cfg), before); diff != "" {
		t.Errorf("left on the host (-got +want):\n%s", diff)
	}
}

func TestTwoInstances(t *testing.T) {
	one, two := testConfig(t, "one"), testConfig(t, "two")
	h1, stop1 := run(t, one)
	h2, stop2 := run(t, two)
	n1, n2 := dial(t, h1), dial(t, h2)
	_, _, ip1 := n1.pod("web", nil, "serve")
	_, c2, ip2 := n2.pod("web", nil, "serve")
	get(t, "http://"+ip1+":8080/healthz")
	stop1()
	if _, err := New(one).Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	n2.running(t, c2)
	get(t, "http://"+ip2+":8080/healthz")
	if changed, err := h2.net().Ensure(t.Context()); changed || err != nil {
		t.Errorf("removing one instance changed the network of the other: %v, %v", changed, err)
	}
	stop2()
}

func TestEverythingKilled(t *testing.T) {
	cfg := testConfig(t, "killed")
	h, stop := run(t, cfg)
	n := dial(t, h)
	_, container, _ := n.pod("web", nil, "serve")
	stop()
	// A power cut: nothing runs, nothing is mounted, /run is empty.
	if err := New(cfg).Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := mounttree.Remove(cfg.RunDir); err != nil {
		t.Fatal(err)
	}
	if _, err := h.net().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	h, stop = run(t, cfg)
	defer stop()
	n = dial(t, h)
	resp, err := n.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: container})
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.GetStatus().GetState(); got != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("container after a power cut: got %v", got)
	}
	n.pod("web2", nil, "serve")
}

func TestAgentDiedWhileStarting(t *testing.T) {
	cfg := testConfig(t, "halfway")
	dead := New(cfg)
	hash, err := dead.prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, err := dead.start(hash)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	h, stop := run(t, cfg)
	defer stop()
	if got := containerdPID(t, cfg); got != p.pid {
		t.Errorf("containerd: got process %d, want the started one, %d", got, p.pid)
	}
	dial(t, h).pod("web", nil, "serve")
}

func TestHungContainerdIsReplaced(t *testing.T) {
	cfg := testConfig(t, "hung")
	h, stop := run(t, cfg)
	n := dial(t, h)
	_, container, _ := n.pod("web", nil, "serve")
	stop()
	old := containerdPID(t, cfg)
	if err := syscall.Kill(old, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	h = New(cfg)
	h.answerTimeout, h.stopTimeout = time.Second, time.Second
	stop = start(t, h)
	defer stop()
	if got := containerdPID(t, cfg); got == old {
		t.Errorf("containerd is still process %d, which hangs", got)
	}
	n.running(t, container)
}

// TestContainerdHangsLater stops a containerd that has been well: it accepts and
// never answers.
func TestContainerdHangsLater(t *testing.T) {
	cfg := testConfig(t, "hangs")
	problems := make(chan string, 100) // as many as there could be
	cfg.Down = func(problem string) { problems <- problem }
	h := New(cfg)
	// A busy machine keeps one that is well from answering for a moment, too.
	h.answerTimeout, h.healthPeriod, h.hungLimit = 3*time.Second, 50*time.Millisecond, 6*time.Second
	stop := start(t, h)
	defer stop()
	n := dial(t, h)
	_, container, _ := n.pod("web", nil, "serve")
	old := containerdPID(t, cfg)
	if err := syscall.Kill(old, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"", "it does not answer since ", "although it runs", ""} {
		if got := <-problems; !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	if got := containerdPID(t, cfg); got == old {
		t.Errorf("containerd is still process %d, which hangs", got)
	}
	n.running(t, container)
}

// TestContainerdHangsForAMoment lets it go on before it is too late.
func TestContainerdHangsForAMoment(t *testing.T) {
	cfg := testConfig(t, "moment")
	problems := make(chan string, 100) // as many as there could be
	cfg.Down = func(problem string) { problems <- problem }
	h := New(cfg)
	h.answerTimeout, h.healthPeriod = 3*time.Second, 50*time.Millisecond
	stop := start(t, h)
	defer stop()
	if got := <-problems; got != "" {
		t.Errorf("told %q of a good start", got)
	}
	pid := containerdPID(t, cfg)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if got := <-problems; !strings.Contains(got, "it does not answer") {
		t.Errorf("told %q", got)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := <-problems; got != "" {
		t.Errorf("told %q, want that it answers again", got)
	}
	if got := containerdPID(t, cfg); got != pid {
		t.Errorf("containerd is process %d, want still %d", got, pid)
	}
}

// TestNoRoom fills the disk below containerd: its log cannot say it.
func TestNoRoom(t *testing.T) {
	cfg := testConfig(t, "noroom")
	if err := os.MkdirAll(cfg.RootDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", cfg.RootDir, "tmpfs", 0, "size=128k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(cfg.RootDir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	err := New(cfg).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "there is no space left in "+cfg.RootDir) {
		t.Errorf("got %v, want the full disk in it", err)
	}
}

func TestBrokenRuntimeSaysWhy(t *testing.T) {
	cfg := testConfig(t, "broken")
	bundled := cfg.RuntimeDir
	cfg.RuntimeDir = t.TempDir()
	if err := os.Mkdir(filepath.Join(cfg.RuntimeDir, "cni"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		if err := os.Symlink(filepath.Join(bundled, name), cfg.program(name)); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\necho cannot work here >&2\nexit 1\n"
	if err := errors.Join(os.Remove(cfg.program("containerd")), os.WriteFile(cfg.program("containerd"), []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
	err := New(cfg).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "cannot work here") {
		t.Errorf("got %v, want the end of the log in it", err)
	}
}

func TestContainerdWithoutCRISaysWhy(t *testing.T) {
	cfg := testConfig(t, "nocri")
	// A file where the snapshotter wants a folder.
	snapshots := filepath.Join(cfg.containerdDir(), "root", "io.containerd.snapshotter.v1.overlayfs")
	if err := errors.Join(os.MkdirAll(filepath.Dir(snapshots), 0o711), os.WriteFile(snapshots, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	err := New(cfg).Run(t.Context())
	if !errors.Is(err, errNoCRI) || !strings.Contains(err.Error(), "overlayfs") {
		t.Errorf("got %v, want errNoCRI and the cause", err)
	}
}

func TestRemoveFindsNothing(t *testing.T) {
	cfg := testConfig(t, "nothing")
	before := traces(t, cfg)
	for range 2 {
		if _, err := New(cfg).Remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(traces(t, cfg), before); diff != "" {
		t.Errorf("left on the host (-got +want):\n%s", diff)
	}
}
