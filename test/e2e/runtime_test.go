package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

// containerd returns the process ID of the node's private containerd.
func (n *node) containerd() int {
	n.t.Helper()
	pids := pidsOf(n.t, filepath.Join(n.root, "containerd", "config.toml"))
	if len(pids) != 1 {
		n.t.Fatalf("containerd is processes %v", pids)
	}
	return pids[0]
}

// linkRuntime gives the node a folder of programs of its own, to break things in.
func (n *node) linkRuntime() (dir string) {
	n.t.Helper()
	dir = n.t.TempDir()
	from := filepath.Join(binDir, "runtime")
	if err := os.Mkdir(filepath.Join(dir, "cni"), 0o755); err != nil {
		n.t.Fatal(err)
	}
	for _, path := range append(glob(n.t, from+"/*"), glob(n.t, from+"/cni/*")...) {
		name, err := filepath.Rel(from, path)
		if err != nil {
			n.t.Fatal(err)
		}
		if name != "cni" {
			if err := os.Symlink(mustAbs(path), filepath.Join(dir, name)); err != nil {
				n.t.Fatal(err)
			}
		}
	}
	n.env = append(n.env, "HOLDFAST_RUNTIME_DIR="+dir)
	return dir
}

// TestRuntimeTrouble is all that can happen to a runtime below a running agent.
func TestRuntimeTrouble(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	programs := n.linkRuntime()
	n.up()
	in, err := instance.Open(n.root)
	if err != nil {
		t.Fatal(err)
	}
	n.write("web.yaml", servePod("web"))
	before := containers(n.running("web-edge-1"))
	same := func(t *testing.T) {
		t.Helper()
		n.eventually("exec works", func() error {
			out, err := n.tryKubectl("", "exec", "web-edge-1", "--", "/demo", "echo", "here I am")
			return errors.Join(err, wants(out, "here I am"))
		})
		n.eventually("nothing is wrong", func() error {
			out, err := n.try("status")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		if got := containers(n.running("web-edge-1")); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
	}

	step(t, "containerd is killed", func(t *testing.T) {
		n.t = t
		old := n.containerd()
		kill(t, old)
		n.eventually("another containerd", func() error {
			if pids := pidsOf(t, filepath.Join(n.root, "containerd", "config.toml")); len(pids) != 1 || pids[0] == old {
				return fmt.Errorf("processes %v", pids)
			}
			return nil
		})
		same(t)
	})

	step(t, "containerd hangs for a while", func(t *testing.T) {
		n.t = t
		pid := n.containerd()
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		n.eventually("the node says so", func() error {
			out, err := n.try("status")
			if err == nil {
				return errors.New("status exits 0")
			}
			return wants(out, "containerd", "failing", "does not answer since")
		})
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		same(t)
		if got := n.containerd(); got != pid {
			t.Errorf("containerd is process %d, want still %d", got, pid)
		}
	})

	step(t, "the agent starts while containerd hangs", func(t *testing.T) {
		n.t = t
		kill(t, n.report().PID)
		if err := syscall.Kill(n.containerd(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		n.up()
		same(t)
	})

	step(t, "containerd cannot start", func(t *testing.T) {
		n.t = t
		containerd := filepath.Join(programs, "containerd")
		good, err := os.Readlink(containerd)
		if err != nil {
			t.Fatal(err)
		}
		bad := []byte("#!/bin/sh\necho this program is broken >&2\nexit 1\n")
		if err := errors.Join(os.Remove(containerd), os.WriteFile(containerd, bad, 0o755)); err != nil {
			t.Fatal(err)
		}
		kill(t, n.containerd())
		n.eventually("the node says why", func() error {
			out, _ := n.try("status")
			return wants(out, "failing", "this program is broken")
		})
		if err := errors.Join(os.Remove(containerd), os.Symlink(good, containerd)); err != nil {
			t.Fatal(err)
		}
		same(t)
	})

	step(t, "runc is missing", func(t *testing.T) {
		n.t = t
		runc := filepath.Join(programs, "runc")
		if err := os.Rename(runc, runc+"-away"); err != nil {
			t.Fatal(err)
		}
		n.write("late.yaml", servePod("late"))
		n.eventually("the event says why", func() error {
			return wants(n.kubectl("get", "events"), "FailedCreatePodSandBox", filepath.Join(programs, "runc"))
		})
		if err := os.Rename(runc+"-away", runc); err != nil {
			t.Fatal(err)
		}
		n.running("late-edge-1")
		same(t)
	})

	step(t, "a shim is killed", func(t *testing.T) {
		n.t = t
		late := n.running("late-edge-1")
		sandbox := n.sandbox("late")
		var shim []int
		for _, pid := range pidsOf(t, sandbox) {
			if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && strings.Contains(exe, "containerd-shim") {
				shim = append(shim, pid)
			}
		}
		if len(shim) != 1 {
			t.Fatalf("shims of %s: %v", sandbox, shim)
		}
		kill(t, shim[0])
		n.eventually("the pod starts again", func() error {
			pod := n.pod("late-edge-1")
			if got := containers(pod); got == containers(late) {
				return errors.New(got)
			}
			return nil
		})
		n.running("late-edge-1")
		same(t)
	})

	note := filepath.Join(t.TempDir(), "note")
	step(t, "down with everything dead but the containers", func(t *testing.T) {
		n.t = t
		n.importBusybox()
		n.write("polite.yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: polite}
spec:
  terminationGracePeriodSeconds: 60
  containers:
    - name: main
      image: %s
      command: [sh, -c, 'trap "sleep 2; touch /out/note; exit 0" TERM; touch /out/began; while :; do sleep 0.1; done']
      volumeMounts: [{name: out, mountPath: /out}]
  volumes: [{name: out, hostPath: {path: %s}}]
`, busyboxImage, filepath.Dir(note)))
		n.running("polite-edge-1")
		n.eventually("the trap is set", func() error {
			_, err := os.Stat(filepath.Join(filepath.Dir(note), "began"))
			return err
		})
		kill(t, n.report().PID)
		kill(t, n.containerd())
		if out := n.holdfast("down"); strings.Contains(out, "grpc") {
			t.Errorf("it says what libraries tell their authors:\n%s", out)
		}
		if _, err := os.Stat(note); err != nil {
			t.Errorf("the container had no time to end: %v", err)
		}
		if left := processes(t, in.ID); len(left) != 0 {
			t.Errorf("still running: %v", left)
		}
	})

	step(t, "down with containerd gone for good", func(t *testing.T) {
		n.t = t
		began := filepath.Join(filepath.Dir(note), "began")
		for _, file := range []string{note, began} {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		n.up()
		n.eventually("the trap is set", func() error { // what the API says may be of the container before
			_, err := os.Stat(began)
			return err
		})
		kill(t, n.report().PID)
		kill(t, n.containerd())
		if err := os.Remove(filepath.Join(programs, "containerd")); err != nil {
			t.Fatal(err)
		}
		if err := wants(n.holdfast("down"), "containerd cannot be started", "lacks containerd"); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(note); err != nil {
			t.Errorf("the container had no time to end: %v", err)
		}
		if left := processes(t, in.ID); len(left) != 0 {
			t.Errorf("still running: %v", left)
		}
	})
	n.t = t
}

// sandbox returns the ID of the running sandbox of a static pod, by the shim that
// leads it.
func (n *node) sandbox(pod string) string {
	n.t.Helper()
	in, err := instance.Open(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	out, err := run(n.t, "", ctrBin, "--address", in.Run("containerd.sock"), "--namespace", "k8s.io", "containers", "list",
		"-q", `labels."io.kubernetes.pod.name"==`+pod+"-"+n.name+`,labels."io.cri-containerd.kind"==sandbox`)
	if err != nil {
		n.t.Fatal(out)
	}
	ids := strings.Fields(out)
	if len(ids) == 0 {
		n.t.Fatalf("pod %s has no sandbox", pod)
	}
	return ids[len(ids)-1]
}
