// Package e2e runs the built binary as its users do and asks the same APIs.
// Nothing here looks inside: what it needs is printed, served or on disk.
package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// TestNewUser is the first hour of a new user, step by step: each step builds
// on the one before.
func TestNewUser(t *testing.T) {
	testenv.Need(t, "root")
	host := takeInventory(t)
	n := newNode(t)
	example, err := os.ReadFile("../../examples/web.yaml")
	if err != nil {
		t.Fatal(err)
	}
	web := string(example)

	step(t, "up says what to try next", func(t *testing.T) {
		n.t = t
		out := n.up()
		if err := wants(out, "The node is ready", filepath.Join(n.root, "manifests"), filepath.Join(n.root, "admin.kubeconfig"), "kubectl get pods"); err != nil {
			t.Error(err)
		}
		info, err := os.Stat(filepath.Join(n.root, "admin.kubeconfig"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("admin.kubeconfig: %v, %v; want mode 0600", info, err)
		}
		if err := wants(n.kubectl("get", "nodes"), "edge-1", " Ready"); err != nil {
			t.Error(err)
		}
	})

	step(t, "a pod in a file runs", func(t *testing.T) {
		n.t = t
		n.write("web.yaml", web)
		n.running("web-edge-1")
		r := n.report()
		if !r.Ready || len(r.Faults) != 0 || len(r.Pods) != 1 || r.Pods[0].Source != "file" {
			t.Errorf("status: %+v", r)
		}
	})

	step(t, "logs and exec", func(t *testing.T) {
		n.t = t
		n.eventually("logs", func() error { return wants(n.kubectl("logs", "web-edge-1"), "8080") })
		if err := wants(n.kubectl("exec", "web-edge-1", "--", "/demo", "cat", "/etc/web/greeting"), "Hello from a file"); err != nil {
			t.Error(err)
		}
		n.kubectl("exec", "web-edge-1", "--", "/demo", "write", "/scratch/note", "kept")
		if err := wants(n.kubectl("exec", "web-edge-1", "--", "/demo", "cat", "/scratch/note"), "kept"); err != nil {
			t.Error(err)
		}
		out, err := n.tryKubectl("", "exec", "web-edge-1", "--", "/demo", "exit", "7")
		if err == nil || !strings.Contains(out, "exit code 7") {
			t.Errorf("exec of a command that fails: %v, %s", err, out)
		}
	})

	var before string
	step(t, "a broken edit leaves the pod and is shown", func(t *testing.T) {
		n.t = t
		before = containers(n.running("web-edge-1"))
		n.write("web.yaml", strings.Replace(web, "args: [serve]", "argz: [serve]", 1))
		n.eventually("the fault is shown", func() error {
			out, err := n.try("status")
			if err == nil {
				return errors.New("status exits 0")
			}
			return wants(out, fmt.Sprintf("web.yaml:%d", lineOf(web, "args:")), "Pod default/web", "argz", "args")
		})
		n.eventually("the event", func() error { return wants(n.kubectl("get", "events", "-A"), "web.yaml") })
		n.eventually("the metric", func() error {
			return wants(n.kubectl("get", "--raw", "/api/v1/nodes/edge-1/proxy/metrics"), `holdfast_manifest_errors{file="web.yaml"`)
		})
		n.write("web.yaml", "{ this is no YAML")
		n.eventually("the new fault is shown", func() error {
			out, _ := n.try("status")
			if strings.Contains(out, "argz") {
				return errors.New("the old fault is still there")
			}
			return wants(out, "web.yaml")
		})
		if got := containers(n.running("web-edge-1")); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
	})

	step(t, "the mended file heals it", func(t *testing.T) {
		n.t = t
		n.write("web.yaml", web)
		n.eventually("nothing is wrong", func() error {
			_, err := n.try("status")
			return err
		})
		if got := containers(n.running("web-edge-1")); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
	})

	step(t, "a changed ConfigMap changes the file in the pod", func(t *testing.T) {
		n.t = t
		n.write("web.yaml", strings.Replace(web, "Hello from a file", "Hello again", 1))
		n.eventually("the file changes", func() error {
			return wants(n.kubectl("exec", "web-edge-1", "--", "/demo", "cat", "/etc/web/greeting"), "Hello again")
		})
		if got := containers(n.running("web-edge-1")); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
	})

	step(t, "kill -9 and up again: the same containers", func(t *testing.T) {
		n.t = t
		kill(t, n.report().PID)
		if r := n.report(); r.PID != 0 {
			t.Errorf("status says that process %d runs", r.PID)
		}
		n.up()
		if got := containers(n.running("web-edge-1")); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
		if err := wants(n.kubectl("exec", "web-edge-1", "--", "/demo", "cat", "/scratch/note"), "kept"); err != nil {
			t.Error(err)
		}
	})

	step(t, "SIGTERM and up again: the same containers", func(t *testing.T) {
		n.t = t
		pid := n.report().PID
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		n.eventually("the process ends", func() error {
			if alive(pid) {
				return errors.New("it still runs")
			}
			return nil
		})
		n.up()
		if got := containers(n.running("web-edge-1")); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
	})

	step(t, "down stops pods, up starts them again", func(t *testing.T) {
		n.t = t
		n.holdfast("down")
		if left := processes(t, n.root); len(left) != 0 {
			t.Errorf("still running: %v", left)
		}
		n.up()
		n.running("web-edge-1")
	})

	step(t, "the deleted file takes the pod with it", func(t *testing.T) {
		n.t = t
		n.remove("web.yaml")
		n.eventually("the pod and its ConfigMap go", func() error {
			if n.pod("web-edge-1") != nil {
				return errors.New("the pod is still there")
			}
			if out := n.kubectl("get", "configmap", "web", "--ignore-not-found"); out != "" {
				return errors.New(out)
			}
			return nil
		})
	})

	step(t, "uninstall leaves the host as it was", func(t *testing.T) {
		n.t = t
		n.write("kept.yaml", web)
		out := n.holdfast("uninstall", "--yes")
		if err := wants(out, "Kept: "+filepath.Join(n.root, "manifests")); err != nil {
			t.Error(err)
		}
		entries, err := os.ReadDir(n.root)
		if err != nil || len(entries) != 1 || entries[0].Name() != "manifests" {
			t.Errorf("left in the root folder: %v, %v; want only the manifests", entries, err)
		}
		host.same(t)
	})
	n.t = t
}

// step runs one step of a story; the story ends where a step fails.
func step(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	if !t.Run(name, f) {
		t.FailNow()
	}
}

// lineOf returns the number of the first line of text that holds what.
func lineOf(text, what string) int {
	for i, line := range strings.Split(text, "\n") {
		if strings.Contains(line, what) {
			return i + 1
		}
	}
	return 0
}

// kill ends a process as a crash would, and waits until it is gone.
func kill(t *testing.T, pid int) {
	t.Helper()
	if pid == 0 {
		t.Fatal("no process to kill")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for alive(pid) {
	}
}

// alive reports whether a process runs. A zombie does not, but one whose other
// threads have not ended yet does: they hold its files, and so its lock.
func alive(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	if !strings.HasPrefix(rest, "Z") {
		return true
	}
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	return err == nil && len(threads) > 1
}
