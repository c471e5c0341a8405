package joined_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/test/controlplane"
	"github.com/holdfast-dev/holdfast/test/joined"
)

// TestOutage kills the API server under the agent, and the agent while it is
// away. No container ends, and the node sees what happens after it.
func TestOutage(t *testing.T) {
	n := joined.Start(t, joined.Config{})
	n.Run(joined.Pod("web"))
	n.AwaitSynced()
	before := n.Running()

	n.Kill(controlplane.APIServer)
	awaitOutage(n)
	n.Resume(controlplane.APIServer)
	mark(t, n, "first")
	awaitNoOutage(n)
	// The new server may have forgotten what the old one had told.
	if got := joined.Lists(n.Requests("pods")); len(got) > 2 {
		t.Errorf("over an outage the whole set was asked for %d times: %+v", len(got), got)
	}
	if after := n.Running(); !maps.Equal(after, before) {
		t.Errorf("after the outage: containers %v, before %v", after, before)
	}

	n.Kill(controlplane.APIServer)
	awaitOutage(n)
	n.KillAgent()
	n.StartAgent()
	n.Eventually("the agent is not registered", func(ctx context.Context) (bool, error) {
		r, err := n.Report(ctx)
		for _, f := range r.Faults {
			if strings.Contains(f.Message, "not registered") {
				return !r.Synced, err
			}
		}
		return false, fmt.Errorf("faults %v, %w", r.Faults, err)
	})
	if after := n.Running(); !maps.Equal(after, before) {
		t.Errorf("the agent began again without the API: containers %v, before %v", after, before)
	}
	n.Resume(controlplane.APIServer)
	n.AwaitSynced()
	n.Run(joined.Pod("late"))
	after := n.Running()
	delete(after, "default/late/main")
	if !maps.Equal(after, before) {
		t.Errorf("after an outage and a new agent: containers %v, before %v", after, before)
	}
	for _, c := range containers(t, n) {
		if c.Attempt != 0 {
			t.Errorf("restarted: %+v", c)
		}
	}
	awaitNoOutage(n)
}

func containers(t *testing.T, n *joined.Node) []joined.Container {
	t.Helper()
	all, err := n.Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// mark makes an edit, and waits until the node has seen it.
func mark(t *testing.T, n *joined.Node, name string) {
	t.Helper()
	pod := n.Create(joined.Pod(name))
	n.AwaitPodReady(name)
	n.Delete(name)
	n.AwaitGone(name, pod.UID)
}

// awaitOutage waits until the agent says that it cannot read pods.
func awaitOutage(n *joined.Node) {
	n.Eventually("the agent says that the API is away", func(ctx context.Context) (bool, error) {
		r, err := n.Report(ctx)
		for _, f := range r.Faults {
			if f.Object == "Pods" && !f.Since.IsZero() {
				return true, nil
			}
		}
		return false, fmt.Errorf("faults %v, %w", r.Faults, err)
	})
}

func awaitNoOutage(n *joined.Node) {
	n.Eventually("the agent has no fault", func(ctx context.Context) (bool, error) {
		r, err := n.Report(ctx)
		return err == nil && len(r.Faults) == 0, fmt.Errorf("faults %v, %w", r.Faults, err)
	})
}

// TestOlderServer: an API server that has no streaming lists.
func TestOlderServer(t *testing.T) {
	n := joined.Start(t, joined.Config{APIServer: []string{"--feature-gates=WatchList=false"}})
	n.Run(joined.Pod("web"))
	patch := []byte(`{"metadata":{"labels":{"colour":"blue"}}}`)
	if _, err := n.Admin.CoreV1().Pods("default").Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	mark(t, n, "second")
	var asked []string
	for _, r := range joined.Lists(n.Requests("pods")) {
		asked = append(asked, fmt.Sprint(r.Verb, " ", r.Code))
	}
	if got, want := strings.Join(asked, ", "), "watch 422, list 200"; got != want {
		t.Errorf("whole sets: %s, want %s", got, want)
	}
}

// TestFrozen: an API server that hangs loses the connections of the node. The
// watch goes on where it was once the server does.
func TestFrozen(t *testing.T) {
	// The agent finds a dead connection sooner than by the defaults, 45 s.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "2")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "2")
	n := joined.Start(t, joined.Config{})
	n.Run(joined.Pod("web"))
	before := n.Running()
	n.Freeze(controlplane.APIServer)
	awaitOutage(n)
	n.Thaw(controlplane.APIServer)
	mark(t, n, "thawed")
	awaitNoOutage(n)
	if got := joined.Lists(n.Requests("pods")); len(got) != 1 {
		t.Errorf("the whole set was asked for %d times, want once: %+v", len(got), got)
	}
	if after := n.Running(); !maps.Equal(after, before) {
		t.Errorf("containers %v, before %v", after, before)
	}
}
