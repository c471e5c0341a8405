package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

const roomyPod = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: edge-1
  priorityClassName: %q
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: holdfast.local/demo:latest
    args: [%s]
    resources: %s
`

// TestCriticalPod has pods end for a critical one that asks for all that the node
// has, and then for a static one that asks for much of it.
func TestCriticalPod(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	var node v1.Node
	if err := json.Unmarshal([]byte(n.kubectl("get", "node", "edge-1", "-o", "json")), &node); err != nil {
		t.Fatal(err)
	}
	apply := func(name, class, args, resources string) {
		n.kubectlIn(fmt.Sprintf(roomyPod, name, class, args, resources), "apply", "-f", "-")
		n.running(name)
	}
	apply("best-effort", "", "pause", "{}")
	apply("burstable", "", "pause", "{requests: {cpu: 100m, memory: 100Mi}}")
	apply("guaranteed", "", "pause", "{requests: {cpu: 100m, memory: 100Mi}, limits: {cpu: 100m, memory: 100Mi}}")
	all := node.Status.Allocatable
	apply("critical", "system-cluster-critical", "pause", fmt.Sprintf("{requests: {cpu: %s, memory: %q}}", all.Cpu(), all.Memory()))
	for _, name := range []string{"burstable", "guaranteed"} {
		n.eventually(name+" has ended for it", func() error {
			s := n.pod(name).Status
			_, c := podutil.GetPodCondition(&s, v1.DisruptionTarget)
			if s.Phase != v1.PodSucceeded || c == nil || c.Reason != v1.PodReasonTerminationByKubelet { // their programs end well
				return fmt.Errorf("status: %+v", s)
			}
			return nil
		})
	}
	if pod := n.pod("best-effort"); pod.Status.Phase != v1.PodRunning || hasDisruption(pod) {
		t.Errorf("best-effort gives nothing, and was ended: %+v", pod.Status)
	}
	n.eventually("the events", func() error {
		return wants(n.kubectl("get", "events"), "Preempting", "Preempted in order to admit critical pod")
	})

	// Room cannot be made for what asks for more than there is, and nobody ends.
	n.write("huge.yaml", fmt.Sprintf(roomyPod, "huge", "system-node-critical", "pause", `{requests: {cpu: "10000"}}`))
	n.endedBy("huge-edge-1", "UnexpectedAdmissionError", n.admissionError("huge-edge-1"), "")
	n.running("critical")
	n.remove("huge.yaml")
	n.write("agent.yaml", fmt.Sprintf(roomyPod, "agent", "system-node-critical", "pause", "{requests: {cpu: 500m}}"))
	n.running("agent-edge-1")
	n.eventually("the less important one has ended", func() error {
		if s := n.pod("critical").Status; s.Phase != v1.PodSucceeded {
			return fmt.Errorf("status: %+v", s)
		}
		return nil
	})
}

// admissionError waits until a pod was not admitted, and returns its message.
func (n *node) admissionError(name string) string {
	n.t.Helper()
	var message string
	n.eventually(name+" is not admitted", func() error {
		pod := n.pod(name)
		if pod == nil {
			return fmt.Errorf("there is none")
		}
		message = pod.Status.Message
		return wants(message, "Pod was rejected: Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt")
	})
	return message
}
