package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/holdfast-dev/holdfast/internal/kubelet/logindtest"
)

const (
	shutdownMessage = "Pod was terminated in response to imminent node shutdown."
	shutdownPeriods = "  shutdownGracePeriod: 4m\n  shutdownGracePeriodCriticalPods: 2m\n"
)

// TestNodeShutdown lets a machine go down, and not go down after all, under pods
// of three classes.
func TestNodeShutdown(t *testing.T) {
	t.Parallel()
	machine := logindtest.Start(t)
	n := newNode(t)
	n.env = []string{"DBUS_SYSTEM_BUS_ADDRESS=" + machine.Address()}
	n.upWith(shutdownPeriods)
	n.importBusybox()
	slow := "    lifecycle: {preStop: {sleep: {seconds: 2}}}\n  terminationGracePeriodSeconds: 10\n"
	class := func(name string) string { return "  priorityClassName: " + name + "\n" }
	static := map[string]string{"web": slow, "agent": slow + class("system-cluster-critical"), "log": class("system-node-critical")}
	for name, spec := range static {
		n.write(name+".yaml", classedPod(name, "serve", spec))
	}
	// A program that ends well makes its pod Succeeded, also now; this one does not.
	n.kubectlIn(fmt.Sprintf(taskPod, busyboxImage), "apply", "-f", "-")
	for name := range static {
		n.running(name + "-edge-1")
	}
	n.running("task")
	n.held(machine, 1)

	before := time.Now()
	machine.SetDown(true)
	n.eventually("the node goes down", func() error {
		return wants(n.kubectl("get", "node", "edge-1", "-o", "yaml"), "message: node is shutting down")
	})
	n.kubectlIn(classedPod("late", "serve", ""), "apply", "-f", "-")
	n.write("later.yaml", classedPod("later", "serve", ""))
	n.held(machine, 0)
	for _, name := range []string{"web-edge-1", "agent-edge-1", "log-edge-1", "task"} {
		n.endedBy(name, "Terminated", shutdownMessage, shutdownMessage)
	}
	n.endedBy("late", "NodeShutdown", "Pod was rejected: Pod was rejected as the node is shutting down.", "")
	n.endedBy("later-edge-1", "NodeShutdown", "Pod was rejected: Pod was rejected as the node is shutting down.", "")
	// The times are of whole seconds. What is critical is not asked to end before
	// the others have ended: each of the two slow ones takes two seconds.
	web, agent := finished(n.pod("web-edge-1")), finished(n.pod("agent-edge-1"))
	if web.Before(before.Add(time.Second)) || agent.Before(web.Add(time.Second)) {
		t.Errorf("from %v on, web ended at %v, and agent, which is critical, at %v", before, web, agent)
	}
	if took := time.Since(before); took > 2*time.Minute { // what those have who are not critical
		t.Errorf("nobody hangs, and it took %v", took)
	}

	machine.SetDown(false)
	for _, name := range []string{"web", "agent", "log", "later"} {
		n.running(name + "-edge-1")
	}
	n.held(machine, 1)
	n.eventually("the node is up", func() error { return wants(n.kubectl("get", "nodes"), " Ready ") })
	n.endedBy("task", "Terminated", shutdownMessage, shutdownMessage)
	n.eventually("the events", func() error {
		return wants(n.kubectl("get", "events"), "Shutdown manager detected shutdown event", "Shutdown manager detected shutdown cancellation")
	})

	machine.SetDown(true)
	n.held(machine, 0)
	kill(t, n.report().PID)
	machine.StopBus()
	machine.SetDown(false)
	n.upWith(shutdownPeriods)
	for _, name := range []string{"web", "agent", "log", "later"} { // after the boot
		if pod := n.running(name + "-edge-1"); hasDisruption(pod) {
			t.Errorf("%s runs again, and has %+v", name, pod.Status.Conditions)
		}
	}
	n.endedBy("task", "Terminated", shutdownMessage, shutdownMessage)
	n.statusSays("the login manager cannot be watched")
	machine.StartBus()
	n.held(machine, 1)
	n.eventually("the fault is over", func() error {
		if out, _ := n.try("status"); strings.Contains(out, "login manager") {
			return errors.New(out)
		}
		return nil
	})
}

const taskPod = `apiVersion: v1
kind: Pod
metadata: {name: task}
spec:
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
    command: [sh, -c, "trap 'exit 3' TERM; sleep 1000 & wait"]
`

// classedPod is demoPod with more of a pod's specification behind its container.
func classedPod(name, args, spec string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n  - name: main\n    image: holdfast.local/demo:latest\n    args: [%s]\n%s", name, args, spec)
}

// held waits until so many inhibitors hold the machine back.
func (n *node) held(machine *logindtest.Machine, want int) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("%d inhibitors", want), func() error {
		if got := machine.Held(); got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// endedBy waits until a pod is Failed for a reason of the node's.
func (n *node) endedBy(name, reason, message, disruption string) {
	n.t.Helper()
	n.eventually(name+" has ended", func() error {
		pod := n.pod(name)
		if pod == nil {
			return errors.New("there is none")
		}
		s := pod.Status
		if s.Phase != v1.PodFailed || s.Reason != reason || s.Message != message || hasDisruption(pod) != (disruption != "") {
			return fmt.Errorf("status: %+v", s)
		}
		if _, c := podutil.GetPodCondition(&s, v1.DisruptionTarget); c != nil && (c.Reason != v1.PodReasonTerminationByKubelet || c.Message != disruption) {
			return fmt.Errorf("condition: %+v", c)
		}
		return nil
	})
}

func hasDisruption(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
}

// finished returns when the container of a pod ended.
func finished(pod *v1.Pod) time.Time {
	if t := pod.Status.ContainerStatuses[0].State.Terminated; t != nil {
		return t.FinishedAt.Time
	}
	return time.Time{}
}
