package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

const orderedPod = `apiVersion: v1
kind: Pod
metadata:
  name: %s
  annotations: {holdfast.dev/after: "%s"}
spec:
  containers:
  - {name: app, image: "holdfast.local/demo:latest", args: [serve], %s}
`

// readySince returns when a pod became Ready.
func readySince(t *testing.T, pod *v1.Pod) time.Time {
	t.Helper()
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	t.Fatalf("%s is not ready", pod.Name)
	return time.Time{}
}

// TestStartOrder starts a pod after another that takes its time to be ready.
func TestStartOrder(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.up()
	n.write("web.yaml", fmt.Sprintf(orderedPod, "web", "db", ""))
	n.statusSays("waits for default/db, and no manifest has a pod of that name")
	n.write("db.yaml", fmt.Sprintf(orderedPod, "db", "", `readinessProbe: {httpGet: {path: /healthz, port: 8080}, initialDelaySeconds: 4, periodSeconds: 1}`))
	n.statusSays("waits for default/db, which is not ready")
	web, db := n.running("web-edge-1"), n.running("db-edge-1")
	if started := web.Status.ContainerStatuses[0].State.Running.StartedAt.Time; started.Before(readySince(t, db)) {
		t.Errorf("web started at %v, before db was ready at %v", started, readySince(t, db))
	}
	n.statusSays("Nothing is wrong.")
	n.eventually("the event", func() error { return wants(n.kubectl("get", "events"), "WaitingForPod") })

	// What runs is adopted, though the other is not ready.
	before := containers(web)
	kill(t, n.report().PID)
	n.remove("db.yaml")
	n.up()
	n.eventually("db is gone", func() error {
		if n.pod("db-edge-1") != nil {
			return errors.New("it is there")
		}
		return nil
	})
	if got := containers(n.running("web-edge-1")); got != before {
		t.Errorf("got containers %s, want %s", got, before)
	}
	n.write("db.yaml", fmt.Sprintf(orderedPod, "db", "", ""))
	n.running("db-edge-1")

	out := n.holdfast("down")
	first, second := strings.Index(out, "stopping pod default/web-edge-1"), strings.Index(out, "stopping pod default/db-edge-1")
	if first < 0 || second < first {
		t.Errorf("want web stopped before db:\n%s", out)
	}
	n.up() // what is left of pods is looked for on a node that runs
	n.running("web-edge-1")
}
