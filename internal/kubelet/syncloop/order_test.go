package syncloop

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/startorder"
)

// TestRemainsOfAPodThatWaits holds that a pod that waits for its turn after a
// reboot, or for its admission, keeps what the machine has of it, its files above
// all, until no source has it any more.
func TestRemainsOfAPodThatWaits(t *testing.T) {
	for name, wait := range map[string]func(w *world, late *v1.Pod){
		"for another pod":   func(_ *world, late *v1.Pod) { late.Annotations[startorder.Annotation] = "db" },
		"for its admission": func(w *world, late *v1.Pod) { w.refused[late.Name] = "OutOfcpu" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, has("late", "web", observed.Exited))
				late := static("late", "web")
				wait(w, late)
				w.Deliver(t.Context(), "file", []*v1.Pod{late, static("db", "db")})
				w.Deliver(t.Context(), "api", nil)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				for _, line := range w.log {
					if line == "orphan late" {
						t.Fatalf("told %q", w.log)
					}
				}
				// The runtime forgets it, and its files stay.
				w.mu.Lock()
				w.runtime = nil
				w.mu.Unlock()
				if known := w.known(); !known("late") || known("other") {
					t.Error("the sweeper takes away files of a pod that is wanted")
				}

				w.Deliver(t.Context(), "file", []*v1.Pod{static("db", "db")})
				synctest.Wait()
				if w.known()("late") {
					t.Error("the sweeper leaves files of a pod that nobody wants")
				}
			})
		})
	}
}
