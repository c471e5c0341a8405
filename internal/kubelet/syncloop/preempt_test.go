package syncloop

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
)

// critical makes a world where db and web run and the static pod agent fits only
// without them.
func critical(t *testing.T) *world {
	w := newWorld(t)
	w.slow, w.refused = true, map[string]string{"agent": "victims"}
	web := pod("b", "web")
	web.Spec.TerminationGracePeriodSeconds = new(int64(60))
	w.Deliver(t.Context(), "api", []*v1.Pod{pod("a", "db"), web})
	w.want("observe a", "create a", "observe b", "create b")
	w.Deliver(t.Context(), "file", []*v1.Pod{static("s", "agent")})
	return w
}

// wantDone is want for what is asked of workers and told to statuses.
func (w *world) wantDone(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := slices.DeleteFunc(w.log, func(line string) bool { return line == "sweep" || strings.HasPrefix(line, "mirrors ") })
	if diff := cmp.Diff(got, want, cmpopts.EquateEmpty()); diff != "" {
		w.t.Errorf("got -, want +:\n%s", diff)
	}
	w.log = nil
}

func (w *world) finish(uid string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	info := w.infos[pod(uid, "").UID]
	info.State = lifecycle.Finished
	w.infos[info.UID] = info
	w.mu.Unlock()
	w.ended <- struct{}{}
	synctest.Wait()
}

var ended = []string{
	"end a: Preempting: Preempted in order to admit critical pod, true", "kill a",
	"end b: Preempting: Preempted in order to admit critical pod, true", "kill b",
}

// TestPreemption holds that a critical pod starts once all have ended that end for
// it, and that these are told why, once.
func TestPreemption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := critical(t)
		w.wantDone(ended...)
		for range 2 {
			if got, want := <-w.recorder.Events, "Warning Preempting Preempted in order to admit critical pod"; got != want {
				t.Errorf("event %q, want %q", got, want)
			}
		}
		w.Deliver(t.Context(), "file", []*v1.Pod{static("s", "agent")}) // nothing new
		w.finish("a")
		time.Sleep(5 * time.Second) // housekeeping
		w.wantDone()
		w.finish("b")
		w.wantDone("create s")
		if n := len(w.recorder.Events); n != 0 {
			t.Errorf("%d more events, such as %q", n, <-w.recorder.Events)
		}
	})
}

// TestPreemptionIsNoEndlessWait holds that a pod that does not end holds a
// critical one up for half as long again as it may take.
func TestPreemptionIsNoEndlessWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := critical(t)
		w.wantDone(ended...)
		time.Sleep(89 * time.Second)
		w.wantDone()
		time.Sleep(2 * time.Second)
		w.wantDone("create s")
	})
}

// TestPreemptorGoes holds that a critical pod that goes while it waits never
// starts.
func TestPreemptorGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := critical(t)
		w.wantDone(ended...)
		w.Deliver(t.Context(), "file", nil)
		w.wantDone("remove s")
		w.finish("a")
		w.finish("b")
		time.Sleep(time.Minute)
		w.wantDone()
	})
}

// TestSecondPreemptor holds that two critical pods share what they are given: a
// pod that ends already is not asked again.
func TestSecondPreemptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := critical(t)
		w.wantDone(ended...)
		w.mu.Lock()
		w.refused["static-log"] = "victims"
		w.mu.Unlock()
		w.Deliver(t.Context(), "file", []*v1.Pod{static("s", "agent"), static("l", "static-log")})
		w.wantDone("end s: Preempting: Preempted in order to admit critical pod, true", "kill s")
		w.finish("a")
		w.finish("b")
		w.wantDone()
		w.finish("s")
		w.wantDone("create l")
	})
}
