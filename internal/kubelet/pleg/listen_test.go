package pleg

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// TestStream holds that with a stream a change is seen at once, and that lists
// are slow then.
func TestStream(t *testing.T) {
	runtime := newScripted()
	runtime.set("a", "c", observed.Running)
	run(t, runtime, func(t *testing.T, r rig) {
		r.received()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		before := runtime.listCount()
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if n := runtime.listCount() - before; n != 10 {
			t.Errorf("%d lists in 15 minutes, want 10", n)
		}
		began := time.Now()
		runtime.set("a", "c", observed.Exited)
		runtime.tell("a", "c")
		r.wantEvents(t, "a changed")
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

// TestStreamAtStart holds that what changed before the stream could be relied
// on is found within a period.
func TestStreamAtStart(t *testing.T) {
	runtime := newScripted()
	run(t, runtime, func(t *testing.T, r rig) {
		for i := range 40 {
			time.Sleep(100 * time.Millisecond)
			if i == 5 || i == 15 {
				runtime.set(types.UID(fmt.Sprint(i)), fmt.Sprint("c", i), observed.Running)
			}
		}
		r.wantEvents(t, "15 changed", "5 changed")
	})
}

// TestWrongEvents holds that events do no harm, whatever they say.
func TestWrongEvents(t *testing.T) {
	runtime := newScripted()
	runtime.set("a", "c", observed.Running)
	run(t, runtime, func(t *testing.T, r rig) {
		r.wantEvents(t, "a changed")
		runtime.takeInspected()
		runtime.do(func() { runtime.takes = time.Millisecond })
		for range 100 {
			runtime.tell("a", "c")    // doubled
			runtime.tell("gone", "x") // about a pod that is gone
			runtime.tell("", "y")     // about nobody knows what
		}
		time.Sleep(10 * time.Millisecond)
		r.wantEvents(t)
		if n := len(runtime.takeInspected()); n > 4 { // two a pod: one that was under way, and one after
			t.Errorf("%d inspections: events of one pod are not made one", n)
		}
		if n := len(r.Pods()); n != 1 {
			t.Errorf("knows %d pods, want 1", n)
		}
		runtime.drop("a")
		runtime.tell("", "c") // as when the last sandbox was removed
		time.Sleep(10 * time.Millisecond)
		r.wantEvents(t, "a gone")
	})
}

// TestMissingEvents holds that lists find what the stream does not tell, that
// this is counted, and that lists are frequent for a while then.
func TestMissingEvents(t *testing.T) {
	runtime := newScripted()
	runtime.set("a", "c", observed.Running)
	run(t, runtime, func(t *testing.T, r rig) {
		r.received()
		time.Sleep(10 * time.Minute)
		runtime.set("a", "c", observed.Exited)
		began := time.Now()
		for len(r.received()) == 0 {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took > 91*time.Second {
			t.Errorf("found after %v", took)
		}
		time.Sleep(10 * time.Second) // the event might have been late
		synctest.Wait()
		if n := testutil.ToFloat64(r.metrics.missed); n != 1 {
			t.Errorf("%v missed, want 1", n)
		}
		runtime.set("a", "c", observed.Running)
		time.Sleep(time.Second)
		r.wantEvents(t, "a changed")
	})
}

// TestMissingEventOfARestart holds that a missing event counts although the
// pod's worker, which a list woke, changes the pod again before the next list.
func TestMissingEventOfARestart(t *testing.T) {
	runtime := newScripted()
	runtime.set("a", "c", observed.Running)
	run(t, runtime, func(t *testing.T, r rig) {
		r.received()
		time.Sleep(10 * time.Minute)
		runtime.set("a", "c", observed.Exited) // nobody tells
		for len(r.received()) == 0 {
			time.Sleep(time.Second)
		}
		runtime.set("a", "d", observed.Running)
		r.Poke("a")
		r.wantEvents(t, "a changed")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := testutil.ToFloat64(r.metrics.missed); n != 1 {
			t.Errorf("%v missed, want 1", n)
		}
	})
}

// TestListPace holds how the lists slow down while the stream tells
// everything, and that one thing that it does not tell brings them back.
func TestListPace(t *testing.T) {
	runtime := newScripted()
	runtime.set("a", "c", observed.Running)
	run(t, runtime, func(t *testing.T, r rig) {
		r.received()
		lists := func(d time.Duration) int {
			before := runtime.listCount()
			time.Sleep(d)
			synctest.Wait()
			return runtime.listCount() - before
		}
		time.Sleep(4*time.Second + time.Millisecond) // the stream has settled, and a list has been since
		got := []int{lists(10 * time.Second), lists(20 * time.Second), lists(40 * time.Second), lists(80 * time.Second), lists(90 * time.Second)}
		if diff := cmp.Diff([]int{1, 1, 1, 1, 1}, got); diff != "" {
			t.Errorf("lists while nothing is missing (-want +got):\n%s", diff)
		}
		time.Sleep(20 * time.Second) // the next one is far
		runtime.set("a", "d", observed.Running)
		runtime.tell("a", "d")
		r.wantEvents(t, "a changed")
		got = []int{lists(9500 * time.Millisecond), lists(time.Second), lists(19 * time.Second), lists(time.Second)}
		if diff := cmp.Diff([]int{0, 1, 0, 1}, got); diff != "" {
			t.Errorf("lists after a pod changed (-want +got):\n%s", diff)
		}
		runtime.set("a", "c", observed.Exited)
		for len(r.received()) == 0 {
			time.Sleep(time.Second)
		}
		got = []int{lists(8 * time.Second), lists(2 * time.Second)}
		if diff := cmp.Diff([]int{0, 1}, got); diff != "" {
			t.Errorf("lists after one found what no event had told (-want +got):\n%s", diff)
		}
		if n := lists(time.Minute); n < 58 {
			t.Errorf("%d lists in the minute after an event was known to be missing", n)
		}
	})
}

// TestLateEvent holds that an event that comes after a list showed the change
// is not missing.
func TestLateEvent(t *testing.T) {
	runtime := newScripted()
	runtime.set("a", "c", observed.Running)
	run(t, runtime, func(t *testing.T, r rig) {
		r.received()
		time.Sleep(time.Minute)
		runtime.set("a", "c", observed.Exited)
		for len(r.received()) == 0 {
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		runtime.tell("a", "c") // before the next list, which comes 10 s after
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := testutil.ToFloat64(r.metrics.missed); n != 0 {
			t.Errorf("%v missed, want 0", n)
		}
	})
}

// TestStreamBreaks holds that a stream is opened again for ever, and that what
// happened in between is found at once.
func TestStreamBreaks(t *testing.T) {
	runtime := newScripted()
	runtime.set("a", "c", observed.Running)
	run(t, runtime, func(t *testing.T, r rig) {
		r.received()
		for i := range 50 { // upstream gives up after five
			time.Sleep(time.Minute)
			synctest.Wait()
			state := []observed.State{observed.Exited, observed.Running}[i%2]
			runtime.set("a", "c", state) // nobody tells
			runtime.breakStreams()
			r.wantEvents(t, "a changed")
		}
		time.Sleep(time.Second)
		runtime.set("a", "c", observed.Unknown)
		runtime.tell("a", "c")
		r.wantEvents(t, "a changed")
		if n := testutil.ToFloat64(r.metrics.streamErrors); n != 50 {
			t.Errorf("%v streams broke, want 50", n)
		}
	})
}

// TestStreamComesLater has a runtime that is replaced by one with a stream.
func TestStreamComesLater(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents = true
	run(t, runtime, func(t *testing.T, r rig) {
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := runtime.listCount(); n < 3000 {
			t.Errorf("%d lists in an hour without a stream", n)
		}
		runtime.do(func() { runtime.noEvents = false })
		time.Sleep(2 * time.Minute)
		runtime.set("a", "c", observed.Running)
		runtime.tell("a", "c")
		r.wantEvents(t, "a changed")
		if n := testutil.ToFloat64(r.metrics.streams); n != 1 {
			t.Errorf("%v streams brought events, want 1", n)
		}
	})
}

// TestEventOvertakesList has a list that was asked before a change and is
// answered after the change's event: the list's old news does not undo it.
func TestEventOvertakesList(t *testing.T) {
	began := time.Now()
	l := &loop{
		Generator: New(Config{Runtime: newScripted(), Cache: observed.NewCache()}),
		slots:     newSlots(4), listed: true,
	}
	p := l.slots.get("a")
	l.slots.mark(p)
	if l.slots.take() != p {
		t.Fatal("not taken")
	}
	l.takeInspection(inspectAnswer{p, &observed.Status{UID: "a", Containers: []observed.ContainerStatus{{ID: "c", State: observed.Exited}}}, nil, began.Add(2)})
	l.out.pop()
	l.takeList(listAnswer{[]observed.Pod{{UID: "a", Containers: []observed.Container{{ID: "c", State: observed.Running}}}}, nil, began.Add(1)})
	if p.due {
		t.Error("an older list asks for an inspection")
	}
	l.takeList(listAnswer{nil, nil, began.Add(1)})
	if got, err := l.cfg.Cache.Get("a"); err != nil || len(got.Containers) != 1 {
		t.Errorf("an older list without the pod deleted it: %v, %v", got, err)
	}
	if len(l.out.order) != 0 {
		t.Errorf("events of an older list: %v", l.out.order)
	}
}
