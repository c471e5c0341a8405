package e2e

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/doctor"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// doctor asks about a machine and returns the findings and the exit code.
func (n *node) doctor(args ...string) (map[string]doctor.Finding, int) {
	n.t.Helper()
	out, err := n.try(append([]string{"doctor", "-o", "json"}, args...)...)
	code := 0
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // of Run itself
		code = exit.ExitCode()
	} else if err != nil {
		n.t.Fatal(err)
	}
	var list []doctor.Finding
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		n.t.Fatalf("doctor: %v\n%s", err, out)
	}
	found := map[string]doctor.Finding{}
	for _, f := range list {
		found[f.ID] = f
	}
	return found, code
}

// TestDoctor asks about this machine before a node is there, with a port that is
// taken, and while the node runs.
func TestDoctor(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	before, code := n.doctor("--api-port", "0", "--kubelet-port", "0")
	for _, id := range []string{"root", "runtime", "cgroups", "disk", "overlay", "iptables", "clock", "swap", "ip-forward"} {
		if f, ok := before[id]; !ok || f.Level == doctor.Error {
			t.Errorf("%s: %+v", id, f)
		}
	}
	if code != 0 {
		t.Errorf("exit code %d for a machine that runs these tests", code)
	}
	busy, code := n.doctor("--api-port", port, "--kubelet-port", "0")
	if f := busy["port-api"]; code != 4 || f.Level != doctor.Error || !strings.Contains(f.Found, "e2e.test") {
		t.Errorf("a port that this test holds: exit code %d, %+v", code, f)
	}

	n.up()
	api, err := url.Parse(n.report().API)
	if err != nil {
		t.Fatal(err)
	}
	running, code := n.doctor("--api-port", api.Port(), "--kubelet-port", "0")
	if f := running["port-api"]; code != 0 || f.Level != doctor.OK {
		t.Errorf("the node's own port: exit code %d, %+v", code, f)
	}
}

// TestServiceManager runs the node as systemd does with Type=notify.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	cmd := exec.CommandContext(t.Context(), holdfastBin, "--root-dir", n.root, "up", "--node-name", n.name, "--api-port", "0", "--kubelet-port", "0")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=400000")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// hear returns the next datagram that begins so; those before it must be
	// signs of life.
	hear := func(want string) string {
		t.Helper()
		buf := make([]byte, 4096)
		for {
			if err := manager.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			k, err := manager.Read(buf)
			if err != nil {
				t.Fatalf("wait for %s: %v", want, err)
			}
			switch text := string(buf[:k]); {
			case strings.HasPrefix(text, want):
				return text
			case !strings.HasPrefix(text, "WATCHDOG=1"):
				t.Fatalf("got %q, want %s", text, want)
			}
		}
	}
	if text := hear("READY=1"); !strings.Contains(text, "STATUS=0 of 0 pods ready") {
		t.Errorf("got %q", text)
	}
	if r := n.report(); !r.Ready {
		t.Error("READY=1 before the node's own report says so")
	}
	hear("WATCHDOG=1")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hear("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the end: %v", err)
	}
}

// TestInstall puts everything where the systemd unit looks for it, and runs it
// from there.
func TestInstall(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "runtime") // and the binary, which is built with it
	dest := t.TempDir()
	if out, err := run(t, "", "make", "-C", "../..", "--no-print-directory", "install", "DESTDIR="+dest, "BUILT=1"); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	// program returns what a unit starts.
	program := func(unit string) string {
		text, err := os.ReadFile(filepath.Join(dest, "lib/systemd/system", unit))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if words, ok := strings.CutPrefix(line, "ExecStart="); ok {
				return strings.Fields(words)[0]
			}
		}
		t.Fatalf("%s starts nothing", unit)
		return ""
	}
	start := program("holdfast.service")
	kubelet := program("holdfast-kubelet.service")
	out, err := run(t, "", filepath.Join(dest, kubelet), "--version")
	if want := "Kubernetes " + version.Kubernetes + "\n"; err != nil || out != want {
		t.Errorf("%s --version: got %q, %v, want %q", kubelet, out, err, want)
	}
	out, err = run(t, "", filepath.Join(dest, start), "version")
	if err != nil || !strings.Contains(out, "Holdfast") {
		t.Errorf("%s version: %v\n%s", start, err, out)
	}
	out, err = run(t, "", filepath.Join(dest, start), "kubectl", "version", "--client", "--kubeconfig=")
	if err != nil || !strings.Contains(out, "Client Version: "+version.Kubernetes) {
		t.Errorf("%s kubectl version: %v\n%swant %s (\"make build\" puts it in)", start, err, out, version.Kubernetes)
	}
	entries, err := os.ReadDir(filepath.Join(dest, "usr/libexec/holdfast"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	for _, want := range []string{"containerd", "containerd-shim-runc-v2", "runc", "cni"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s among %v", want, names)
		}
	}
}
