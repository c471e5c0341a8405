package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestDebug is kubectl debug. Its parts are independent of each other and share
// one node.
func TestDebug(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.importBusybox()
	for name, test := range map[string]func(*testing.T, *node){
		"a shell beside a container": testDebugShell,
		"it runs once":               testDebugOnce,
		"what cannot be":             testDebugRefused,
		"a copy of a pod":            testDebugCopy,
		"a shell on the node":        testDebugNode,
	} {
		t.Run(name, func(t *testing.T) {
			sub := *n
			sub.t = t
			test(t, &sub)
		})
	}
}

func testDebugShell(t *testing.T, n *node) {
	n.kubectlIn(demoPod("looked-at", "serve", ""), "apply", "-f", "-")
	before := containers(n.running("looked-at"))
	s := n.startInTerminal("debug", "looked-at", "-it", "--image="+busyboxImage, "--image-pull-policy=Never", "--target=main", "-c", "shell", "--", "sh")
	s.expect("# ")
	s.send("ps; stty size\r")
	s.expect("/demo serve") // the target's processes
	s.expect("24 80")
	s.resize(100, 30)
	s.expect("# ")
	s.send("while [ \"$(stty size)\" != '30 100' ]; do sleep 0.1; done; echo re''sized\r")
	s.expect("resized")
	s.send("cat /proc/1/root/demo | head -c 4; exit 3\r")
	out, err := s.wait()
	if err := wants(out, "ELF"); err != nil {
		t.Error(err) // the target's files, through its process
	}
	if err == nil {
		t.Log("kubectl debug does not hand on the exit code")
	}
	n.eventually("its end is told", func() error {
		statuses := n.pod("looked-at").Status.EphemeralContainerStatuses
		if len(statuses) != 1 || statuses[0].State.Terminated == nil || statuses[0].State.Terminated.ExitCode != 3 {
			return fmt.Errorf("statuses: %+v", statuses)
		}
		return nil
	})
	pod := n.running("looked-at")
	if got := containers(pod); got != before {
		t.Errorf("the pod's own containers: got %s, want %s", got, before)
	}
	n.kubectl("delete", "pod", "looked-at", "--timeout=3m")
}

// A debug container is started once, whatever its end, and again not after a
// restart of the agent. The pod goes on, and its end ends them.
func testDebugOnce(t *testing.T, n *node) {
	n.kubectlIn(demoPod("once", "serve", ""), "apply", "-f", "-")
	n.running("once")
	n.kubectl("debug", "once", "--image="+busyboxImage, "--image-pull-policy=Never", "-c", "fails", "--", "sh", "-c", "echo came; exit 1")
	ended := func(name string) error {
		for _, s := range n.pod("once").Status.EphemeralContainerStatuses {
			if s.Name == name && s.State.Terminated != nil && s.RestartCount == 0 {
				return nil
			}
		}
		return fmt.Errorf("statuses: %+v", n.pod("once").Status.EphemeralContainerStatuses)
	}
	n.eventually("it ended", func() error { return ended("fails") })
	if got := n.kubectl("logs", "once", "-c", "fails"); got != "came\n" {
		t.Errorf("its log: %q", got)
	}
	kill(t, n.report().PID)
	n.up()
	n.kubectl("debug", "once", "--image="+busyboxImage, "--image-pull-policy=Never", "-c", "goes-on", "--", "sleep", "1000")
	n.eventually("the second runs", func() error {
		for _, s := range n.pod("once").Status.EphemeralContainerStatuses {
			if s.Name == "goes-on" && s.State.Running != nil {
				return ended("fails")
			}
		}
		return fmt.Errorf("statuses: %+v", n.pod("once").Status.EphemeralContainerStatuses)
	})
	if got := n.kubectl("logs", "once", "-c", "fails"); got != "came\n" {
		t.Errorf("its log after a restart: %q", got)
	}
	if err := wants(n.kubectl("exec", "once", "-c", "goes-on", "--", "ps"), "sleep 1000"); err != nil {
		t.Error(err)
	}
	if err := wants(n.kubectl("describe", "pod", "once"), "Ephemeral Containers:", "goes-on:"); err != nil {
		t.Error(err)
	}
	n.kubectl("delete", "pod", "once", "--timeout=3m")
}

func testDebugRefused(t *testing.T, n *node) {
	n.kubectlIn(demoPod("plain", "serve", ""), "apply", "-f", "-")
	n.write("debugged.yaml", demoPod("debugged", "serve", ""))
	n.running("plain")
	n.running("debugged-edge-1")
	out, err := n.tryKubectl("", "debug", "plain", "--image="+busyboxImage, "--target=none", "--", "true")
	if err == nil || !strings.Contains(out, `targetContainerName: Not found: "none"`) {
		t.Errorf("a target that is not there: %v, %s", err, out)
	}
	out, err = n.tryKubectl("", "debug", "debugged-edge-1", "--image="+busyboxImage, "--", "true")
	if err == nil || !strings.Contains(out, "static pods do not support ephemeral containers") {
		t.Errorf("a static pod: %v, %s", err, out)
	}
	n.kubectl("debug", "plain", "--image=holdfast.local/none:1", "-c", "absent", "--", "true")
	n.eventually("an image that is not there is told", func() error {
		return wants(n.kubectl("get", "pod", "plain", "-o", "jsonpath={.status.ephemeralContainerStatuses[0].state.waiting.reason}"), "mage")
	})
	if pod := n.pod("plain"); pod.Status.Phase != v1.PodRunning {
		t.Errorf("phase %s", pod.Status.Phase)
	}
	n.remove("debugged.yaml")
	n.kubectl("delete", "pod", "plain", "--timeout=3m")
}

func testDebugCopy(t *testing.T, n *node) {
	n.kubectlIn(demoPod("original", "serve", ""), "apply", "-f", "-")
	n.running("original")
	n.kubectl("debug", "original", "--copy-to=copy", "--share-processes", "--image="+busyboxImage, "--image-pull-policy=Never", "-c", "shell", "--", "sleep", "1000")
	n.running("copy")
	if err := wants(n.kubectl("exec", "copy", "-c", "shell", "--", "ps"), "/demo serve", "sleep 1000"); err != nil {
		t.Error(err)
	}
	n.kubectl("debug", "original", "--copy-to=changed", "--container=main", "--set-image=main="+busyboxImage, "--", "sleep", "1001")
	if err := wants(n.kubectl("exec", n.running("changed").Name, "--", "ps"), "sleep 1001"); err != nil {
		t.Error(err)
	}
	n.kubectl("delete", "pod", "original", "copy", "changed", "--grace-period=1", "--timeout=3m")
}

func testDebugNode(t *testing.T, n *node) {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	s := n.startInTerminal("debug", "node/edge-1", "-it", "--profile=sysadmin", "--image="+busyboxImage, "--image-pull-policy=Never", "--", "sh")
	s.expect("# ")
	s.send("chroot /host /bin/hostname; chroot /host /bin/ls -d " + n.root + "; ps | grep -c 'holdfast u[p]'\r")
	s.expect(name)
	s.expect(n.root + "\r\n")
	s.send("exit\r")
	if out, err := s.wait(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	var debuggers []string
	for pod := range strings.FieldsSeq(n.kubectl("get", "pods", "-o", "name")) {
		if strings.HasPrefix(pod, "pod/node-debugger-edge-1-") {
			debuggers = append(debuggers, pod)
		}
	}
	if len(debuggers) != 1 {
		t.Fatalf("pods: %q", debuggers)
	}
	pod := n.pod(strings.TrimPrefix(debuggers[0], "pod/"))
	if !pod.Spec.HostPID || !pod.Spec.HostNetwork || !pod.Spec.HostIPC {
		t.Errorf("namespaces: %+v", pod.Spec)
	}
	n.kubectl("delete", debuggers[0], "--timeout=3m")
}
