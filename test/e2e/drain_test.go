package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestDrain empties a node as an administrator does before its maintenance.
// Each step builds on the one before.
func TestDrain(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.write("fixed.yaml", demoPod("fixed", "serve", ""))
	for _, name := range []string{"web-1", "web-2"} {
		n.kubectlIn(labelled(demoPod(name, "serve", ""), "web"), "apply", "-f", "-")
	}
	n.kubectlIn(demoPod("other", "serve", ""), "apply", "-f", "-")
	for _, name := range []string{"fixed-edge-1", "web-1", "web-2", "other"} {
		n.running(name)
	}

	step(t, "a cordoned node takes no new pod", func(t *testing.T) {
		n.t = t
		n.kubectl("cordon", "edge-1")
		n.kubectlIn(demoPod("late", "serve", ""), "apply", "-f", "-")
		n.eventually("it waits", func() error { return wants(n.kubectl("events", "--for", "pod/late"), "node(s) were unschedulable") })
		if got := n.pod("late").Spec.NodeName; got != "" {
			t.Errorf("bound to %q", got)
		}
	})
	step(t, "a restart of the agent does not undo it", func(t *testing.T) {
		n.t = t
		before := containers(n.pod("web-1"))
		kill(t, n.report().PID)
		n.up()
		n.running("web-1")
		if err := wants(n.kubectl("get", "nodes"), "SchedulingDisabled"); err != nil {
			t.Error(err)
		}
		if got := containers(n.pod("web-1")); got != before {
			t.Errorf("got %s, want %s", got, before)
		}
	})
	step(t, "uncordon lets it run", func(t *testing.T) {
		n.t = t
		n.kubectl("uncordon", "edge-1")
		n.running("late")
	})
	step(t, "a budget holds drain up", func(t *testing.T) {
		n.t = t
		n.kubectl("create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=1")
		n.eventually("it is counted", func() error {
			got := n.kubectl("get", "poddisruptionbudget", "web", "-o", "jsonpath={.status.disruptionsAllowed} {.status.expectedPods}")
			if got != "1 2" {
				return fmt.Errorf("got %q, want 1 of 2 to be allowed", got)
			}
			return nil
		})
		out, err := n.tryKubectl("", "drain", "edge-1", "--timeout=20s")
		if err == nil || !strings.Contains(out, "cannot delete") || !strings.Contains(out, "use --force to override") {
			t.Errorf("without --force: %v, %s", err, out)
		}
		out, err = n.tryKubectl("", "drain", "edge-1", "--force", "--ignore-daemonsets", "--timeout=12s")
		if err == nil {
			t.Error("it did not fail")
		}
		if err := wants(out, "evicting pod default/other", "would violate the pod's disruption budget", "will retry"); err != nil {
			t.Error(err)
		}
		n.eventually("one pod of the budget is left", func() error {
			var left []string
			for _, name := range []string{"web-1", "web-2", "other", "late"} {
				if n.pod(name) != nil {
					left = append(left, name)
				}
			}
			if len(left) != 1 || !strings.HasPrefix(left[0], "web-") {
				return fmt.Errorf("left are %q", left)
			}
			return nil
		})
	})
	step(t, "without it the node is emptied of all but static pods", func(t *testing.T) {
		n.t = t
		n.kubectl("delete", "poddisruptionbudget", "web")
		n.kubectl("drain", "edge-1", "--force", "--ignore-daemonsets", "--timeout=3m")
		if got, want := n.kubectl("get", "pods", "-A", "-o", "name"), "pod/fixed-edge-1\n"; got != want {
			t.Errorf("left: got %q, want %q", got, want)
		}
		n.kubectl("uncordon", "edge-1")
	})
	step(t, "an evicted pod is asked to end", func(t *testing.T) {
		n.t = t
		n.kubectlIn(demoPod("polite", "serve", "  restartPolicy: Never\n"), "apply", "-f", "-")
		n.running("polite")
		n.kubectlIn(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"polite","namespace":"default"}}`,
			"create", "--raw", "/api/v1/namespaces/default/pods/polite/eviction", "-f", "-")
		n.eventually("it goes", func() error {
			if pod := n.pod("polite"); pod != nil {
				return errors.New(string(pod.Status.Phase))
			}
			return nil
		})
	})
	if pod := n.pod("fixed-edge-1"); pod == nil || pod.Status.Phase != v1.PodRunning {
		t.Errorf("the static pod: %+v", pod)
	}
}

// labelled gives the pod of a manifest of demoPod the label app.
func labelled(manifest, app string) string {
	return strings.Replace(manifest, "metadata:\n", "metadata:\n  labels: {app: "+app+"}\n", 1)
}
