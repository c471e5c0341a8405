package pleg

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// steady returns a generator's runtime that has pod "a", once the stream is relied
// on and nothing is due.
func steady(t *testing.T, r rig, runtime *scripted) {
	t.Helper()
	time.Sleep(time.Minute)
	r.received()
	runtime.takeInspected()
}

// TestQuiet holds that what the stream tells of a pod that somebody works on
// brings one inspection, when that is done.
func TestQuiet(t *testing.T) {
	runtime := newScripted()
	runtime.set("a", "c", observed.Running)
	runtime.set("b", "c", observed.Running)
	run(t, runtime, func(t *testing.T, r rig) {
		steady(t, r, runtime)
		r.Quiet("a")
		for _, state := range []observed.State{observed.Exited, observed.Running, observed.Exited} {
			runtime.set("a", "c", state)
			runtime.tell("a", "c")
			runtime.tell("", "c") // as of a sandbox that was removed
			time.Sleep(50 * time.Millisecond)
		}
		runtime.set("b", "c", observed.Exited)
		runtime.tell("b", "c")
		r.wantEvents(t, "b changed")
		runtime.takeInspected()
		r.Poke("a")
		r.wantEvents(t, "a changed")
		if n := len(runtime.takeInspected()); n != 1 {
			t.Errorf("%d inspections, want 1", n)
		}
		runtime.set("a", "c", observed.Running)
		runtime.tell("a", "c") // nobody works on it any more
		r.wantEvents(t, "a changed")
	})
}

// TestQuietEnds holds that what the stream tells does not wait for a long step, and
// is no missing event when a list sees it first.
func TestQuietEnds(t *testing.T) {
	runtime := newScripted()
	runtime.set("a", "c", observed.Running)
	run(t, runtime, func(t *testing.T, r rig) {
		steady(t, r, runtime)
		r.Quiet("a")
		runtime.set("a", "c", observed.Exited)
		runtime.tell("a", "c")
		time.Sleep(999 * time.Millisecond)
		r.wantEvents(t)
		time.Sleep(time.Millisecond)
		r.wantEvents(t, "a changed")
		runtime.set("a", "c", observed.Running)
		runtime.tell("a", "c") // the step goes on
		r.wantEvents(t, "a changed")
	})
	runtime = newScripted()
	runtime.set("a", "c", observed.Running)
	runWith(t, Config{Quiet: time.Hour}, runtime, func(t *testing.T, r rig) {
		steady(t, r, runtime)
		r.Quiet("a")
		runtime.drop("a")
		runtime.tell("a", "c")
		for len(r.received()) == 0 { // a list finds it
			time.Sleep(time.Second)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if n := testutil.ToFloat64(r.metrics.missed); n != 0 {
			t.Errorf("%v missed, want 0", n)
		}
	})
}

// TestQuietAgain holds the order of a step's end and the next one's beginning.
func TestQuietAgain(t *testing.T) {
	runtime := newScripted()
	runtime.set("a", "c", observed.Running)
	run(t, runtime, func(t *testing.T, r rig) {
		steady(t, r, runtime)
		runtime.set("a", "c", observed.Exited)
		r.Quiet("a")
		r.Poke("a")
		r.Quiet("a")
		r.wantEvents(t, "a changed")
		runtime.set("a", "c", observed.Running)
		runtime.tell("a", "c")
		time.Sleep(100 * time.Millisecond)
		r.wantEvents(t)
		r.Poke("a")
		r.wantEvents(t, "a changed")
	})
}
