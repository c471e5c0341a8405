package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// An elsewhere is another machine: a network namespace with a cable to this one.
type elsewhere struct {
	t     *testing.T
	netns string
	here  string // this machine's address on the cable
}

// newElsewhere lays the cable. It is gone when the test ends.
func newElsewhere(t *testing.T) *elsewhere {
	t.Helper()
	testenv.Need(t, "root")
	id := os.Getpid() % 100000
	e := &elsewhere{t: t, netns: fmt.Sprintf("hfe2e-%d", id), here: "198.51.100.1"}
	cable := fmt.Sprintf("hfk%d", id)
	must := func(args ...string) {
		t.Helper()
		if out, err := run(t, "", "ip", args...); err != nil {
			t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	must("netns", "add", e.netns)
	t.Cleanup(func() { must("netns", "del", e.netns) }) // and the cable with it
	must("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", e.netns)
	t.Cleanup(func() { _, _ = run(t, "", "ip", "link", "del", cable) }) // the namespace may have taken it along
	must("addr", "add", e.here+"/30", "dev", cable)
	must("link", "set", cable, "up")
	must("-n", e.netns, "addr", "add", "198.51.100.2/30", "dev", "eth0")
	must("-n", e.netns, "link", "set", "eth0", "up")
	must("-n", e.netns, "link", "set", "lo", "up")
	return e
}

// kubectl runs kubectl on the other machine.
func (e *elsewhere) kubectl(kubeconfig string, args ...string) (string, error) {
	args = append([]string{"--net=/run/netns/" + e.netns, kubectlBin, "--kubeconfig", kubeconfig, "--request-timeout", "10s"}, args...)
	return run(e.t, "", "nsenter", args...)
}

// stopAgent ends the node's process; its pods go on.
func (n *node) stopAgent() {
	n.t.Helper()
	pid := n.report().PID
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		n.t.Fatal(err)
	}
	n.eventually("the process ends", func() error {
		if alive(pid) {
			return errors.New("it still runs")
		}
		return nil
	})
}

// TestKubectlFromElsewhere is kubectl on another machine with a limited
// account, until that is revoked.
func TestKubectlFromElsewhere(t *testing.T) {
	t.Parallel()
	other := newElsewhere(t)
	n := newNode(t)
	up := func(bind ...string) string {
		args := []string{"up", "--detach", "--node-name", n.name, "--api-port", "0", "--kubelet-port", "0", "--api-name", "edge.example.com"}
		return n.holdfast(append(args, bind...)...)
	}
	if err := wants(up("--bind-address", other.here), "can now be reached from other machines, at "+other.here); err != nil {
		t.Error(err)
	}
	n.kubectl("create", "namespace", "web")
	n.kubectl("run", "p", "-n", "web", "--image=holdfast.local/demo:latest", "--restart=Never")
	files := t.TempDir()
	grant := func(user string, args ...string) string {
		t.Helper()
		file := filepath.Join(files, user)
		out := n.holdfast(append([]string{"kubeconfig", "--user", user, "--file", file}, args...)...)
		if err := wants(out, "the token of "+user+" ends on"); err != nil {
			t.Error(err)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the kubeconfig: %v, %v; want mode 0600", info, err)
		}
		return file
	}
	expect := func(kubeconfig, want string, args ...string) {
		t.Helper()
		n.eventually(strings.Join(args, " "), func() error {
			out, _ := other.kubectl(kubeconfig, args...)
			return wants(out, want)
		})
	}

	anna, ci := grant("anna"), grant("ci", "--role", "edit", "--namespace", "web", "--expires", "1h", "--server", "https://"+other.here)
	expect(anna, "p ", "get", "pods", "-A", "--no-headers")
	expect(anna, "Forbidden", "delete", "pod", "p", "-n", "web")
	expect(anna, "Forbidden", "get", "secrets", "-A")
	expect(ci, "p ", "get", "pods", "--no-headers") // in its namespace
	expect(ci, "Forbidden", "get", "pods", "-n", "default")
	expect(ci, `"p" deleted`, "delete", "pod", "p", "--wait=false")
	if err := wants(n.holdfast("kubeconfig", "--list"), "anna", "view", "(all)", "ci", "edit", "web"); err != nil {
		t.Error(err)
	}

	// Tokens stay good over a restart; the certificate takes every address up.
	n.stopAgent()
	up("--bind-address", "0.0.0.0")
	expect(ci, "No resources found", "get", "configmaps", "-l", "no=such")

	n.holdfast("kubeconfig", "--revoke", "anna")
	expect(anna, "You must be logged in to the server", "get", "pods", "-A")
	expect(ci, "No resources found", "get", "configmaps", "-l", "no=such")
	if out := n.holdfast("kubeconfig", "--list"); strings.Contains(out, "anna") {
		t.Errorf("still listed:\n%s", out)
	}

	// Without the flag nobody gets in from there.
	n.stopAgent()
	up()
	expect(ci, "refused", "get", "pods")
}
