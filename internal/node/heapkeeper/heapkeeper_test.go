package heapkeeper

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newKeeper(ready <-chan struct{}) *Keeper {
	return New(Config{Ready: ready, Log: slog.New(slog.DiscardHandler)})
}

// The runtime knows every metric by the name that we use.
func TestMetricsExist(t *testing.T) {
	known := map[string]bool{}
	for _, d := range metrics.All() {
		known[d.Name] = d.Kind == metrics.KindUint64
	}
	for _, name := range measured {
		if !known[name] {
			t.Errorf("the runtime has no number %s", name)
		}
	}
}

func TestGarbageIsGain(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // else the allocation itself may collect
	k := newKeeper(nil)
	debug.FreeOSMemory()
	before := k.gain()
	const size = 32 << 20
	garbage := make([]byte, size)
	if got := k.gain() - before; got < size/2 {
		t.Errorf("after %d bytes were allocated a collection would gain %d, want about as many", size, got)
	}
	runtime.KeepAlive(garbage)
	k.look() // garbage is not used any more
	if got := k.gain(); got >= worthwhile {
		t.Errorf("after a look a collection would still gain %d bytes, want less than %d", got, worthwhile)
	}
}

func TestRun(t *testing.T) {
	t.Setenv("GOGC", "")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ready := make(chan struct{})
		k := newKeeper(ready)
		var garbage, freed atomic.Int64
		garbage.Store(worthwhile)
		k.gain = garbage.Load
		k.free = func() { freed.Add(1) }
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()

		time.Sleep(time.Hour)
		synctest.Wait()
		if n := freed.Load(); n != 0 || percent() == gcPercent {
			t.Errorf("before the node was ready: %d collections, GC percent %d; want nothing touched", n, percent())
		}
		close(ready)
		synctest.Wait()
		if n := freed.Load(); n != 1 || percent() != gcPercent {
			t.Errorf("when the node was ready: %d collections, GC percent %d; want 1 and %d", n, percent(), gcPercent)
		}
		time.Sleep(settle + 10*period)
		synctest.Wait()
		if n := freed.Load(); n != 12 {
			t.Errorf("after ten minutes with garbage: %d collections, want 12", n)
		}
		garbage.Store(worthwhile - 1)
		time.Sleep(10 * period)
		synctest.Wait()
		if n := freed.Load(); n != 12 {
			t.Errorf("after ten more minutes with little garbage: %d collections, want the 12 from before", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if percent() == gcPercent {
			t.Error("the GC percent was not put back")
		}
	})
}

// A user's own GOGC stays.
func TestUsersGOGC(t *testing.T) {
	t.Setenv("GOGC", "200")
	defer debug.SetGCPercent(debug.SetGCPercent(200))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ready := make(chan struct{})
		close(ready)
		k := newKeeper(ready)
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		synctest.Wait()
		if got := percent(); got != 200 {
			t.Errorf("GC percent %d, want the user's 200", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// percent returns the process's GC percent.
func percent() int {
	p := debug.SetGCPercent(100)
	debug.SetGCPercent(p)
	return p
}
