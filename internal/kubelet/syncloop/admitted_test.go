package syncloop

import (
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

// TestAdmitted holds which pods are kept for a start without the API: its own that
// were taken, with the status that the node saw.
func TestAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := func(wantPods string, wantSeen bool) {
			t.Helper()
			synctest.Wait()
			pods, seen := w.Admitted()
			var names []string
			for _, p := range pods {
				names = append(names, p.Name+"="+string(p.Status.Phase))
			}
			if got := strings.Join(names, " "); got != wantPods || seen != wantSeen {
				t.Errorf("got %q, %v; want %q, %v", got, seen, wantPods, wantSeen)
			}
		}
		w.mu.Lock()
		w.refused["refused"] = "no room"
		w.stored["1"] = v1.PodStatus{Phase: v1.PodRunning}
		w.mu.Unlock()
		w.Deliver(t.Context(), "file", []*v1.Pod{static("9", "static")})
		want("", false)
		w.Deliver(t.Context(), "api", []*v1.Pod{pod("1", "taken"), pod("2", "refused"), mirror("3", "static", "9")})
		want("taken=Running", true)
		w.Deliver(t.Context(), "api", nil)
		want("", true)
	})
}
