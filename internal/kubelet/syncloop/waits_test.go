package syncloop

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decide has it known what becomes of pods whose admission waited.
func (w *world) decide(refused map[string]string) {
	w.mu.Lock()
	w.refused = refused
	w.mu.Unlock()
	w.decided <- struct{}{}
}

// TestAdmissionWaits holds that a pod starts once it is known that the node takes it,
// and not before, whatever else is said of it; and that one that is to end does not
// wait for that.
func TestAdmissionWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.refused = map[string]string{"good": "waits", "bad": "waits", "ending": "waits", "gone": "waits"}
		pods := []*v1.Pod{pod("g", "good"), pod("b", "bad"), pod("e", "ending"), pod("x", "gone")}
		w.Deliver(t.Context(), "api", pods)
		w.wantDone("observe g", "observe b", "observe e", "observe x")
		time.Sleep(10 * time.Second) // housekeeping, of which no pod makes a missing one
		w.wantDone()

		edited, ending := pod("g", "good"), pod("e", "ending")
		edited.ResourceVersion, edited.Labels = "2", map[string]string{"edited": "yes"}
		ending.ResourceVersion, ending.DeletionTimestamp = "3", &metav1.Time{Time: time.Now()}
		w.Deliver(t.Context(), "api", []*v1.Pod{edited, pods[1], ending})
		w.wantDone("remove x", "observe g", "observe e", "create e")

		w.decide(map[string]string{"bad": "waits"})
		w.wantDone("create g")
		w.decide(map[string]string{"bad": "NoDevices"})
		w.wantDone("reject b NoDevices", "kill b")
	})
}
