package joined_test

import (
	"maps"
	"net/http"
	"testing"

	"github.com/holdfast-dev/holdfast/test/joined"
)

func TestMain(m *testing.M) { joined.Main(m) }

// TestHarness: what the harness promises to other tests.
func TestHarness(t *testing.T) {
	n := joined.Start(t, joined.Config{})
	pod := n.Run(joined.Pod("web"))
	n.AwaitSynced()
	before := n.Running()

	if got := joined.Lists(n.Requests("pods")); len(got) != 1 || got[0].Code != http.StatusOK {
		t.Errorf("lists of pods: %+v, want one", got)
	}

	n.KillAgent()
	n.StartAgent()
	n.AwaitSynced()
	n.KillRuntime()
	db := n.Run(joined.Pod("db"))
	after := n.Running()
	delete(after, "default/db/main")
	if !maps.Equal(before, after) {
		t.Errorf("containers %v, before %v", after, before)
	}

	n.Reboot()
	n.StartAgent()
	rebooted := n.AwaitRunning("default/web/main", "default/db/main")
	if rebooted["default/web/main"] == before["default/web/main"] {
		t.Error("the container that ran before the reboot runs")
	}
	n.AwaitReady()
	n.AwaitPodReady("web")
	n.AwaitNoLeaks(pod.UID, db.UID)
	n.Delete("web")
	n.AwaitGone("web", pod.UID)
	n.AwaitNoLeaks(db.UID)
}
