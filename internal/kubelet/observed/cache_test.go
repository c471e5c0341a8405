package observed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at is a moment, seconds after some beginning.
func at(seconds int) time.Time { return time.Unix(1_000_000+int64(seconds), 0) }

// An op changes a cache.
type op func(*Cache)

func set(name string, t int) op {
	return func(c *Cache) { c.Set("a", &Status{UID: "a", Name: name}, nil, at(t)) }
}

func fail(err error, t int) op { return func(c *Cache) { c.Set("a", nil, err, at(t)) } }
func seen(t int) op            { return func(c *Cache) { c.SetObservedTime("a", at(t)) } }
func global(t int) op          { return func(c *Cache) { c.UpdateTime(at(t)) } }
func gone(t int) op            { return func(c *Cache) { c.Delete("a", at(t)) } }
func hold(t int) op            { return func(c *Cache) { c.Hold("a", at(t)) } }

// TestGetNewerThan asks every case twice: of a cache that is in that state, and
// of one that gets there while the reader waits. One rule serves both.
func TestGetNewerThan(t *testing.T) {
	broken := errors.New("runtime broke")
	for _, test := range []struct {
		name  string
		ops   []op
		newer int // than what the reader wants
		want  string
		err   error
		waits bool
	}{
		{name: "nothing known", newer: 0, waits: true},
		{name: "unknown pod, global time newer", ops: []op{global(2)}, newer: 1, want: ""},
		{name: "unknown pod, global time the same", ops: []op{global(1)}, newer: 1, waits: true},
		{name: "unknown pod, global time older", ops: []op{global(0)}, newer: 1, waits: true},
		{name: "modified newer", ops: []op{set("x", 2)}, newer: 1, want: "x"},
		{name: "modified the same", ops: []op{set("x", 1)}, newer: 1, want: "x", waits: true},
		{name: "modified older", ops: []op{set("x", 0)}, newer: 1, waits: true},
		{name: "modified older, global time newer", ops: []op{set("x", 0), global(2)}, newer: 1, want: "x"},
		{name: "modified newer, global time older", ops: []op{global(0), set("x", 2)}, newer: 1, want: "x"},
		{name: "observed newer", ops: []op{set("x", 0), seen(2)}, newer: 1, want: "x"},
		{name: "observed the same", ops: []op{set("x", 0), seen(1)}, newer: 1, waits: true},
		{name: "observed older than modified", ops: []op{set("x", 2), seen(0)}, newer: 1, want: "x"},
		{name: "unknown pod observed", ops: []op{seen(2)}, newer: 1, want: ""},
		{name: "unknown pod observed, then global time", ops: []op{seen(2), global(2)}, newer: 1, want: ""},
		{name: "failed inspection", ops: []op{set("x", 0), fail(broken, 2)}, newer: 1, want: "x", err: broken},
		{name: "failed inspection of an unknown pod", ops: []op{fail(broken, 2)}, newer: 1, want: "", err: broken},
		{name: "failed inspection, then a good one", ops: []op{fail(broken, 2), set("x", 3)}, newer: 2, want: "x"},
		{name: "older inspection comes later", ops: []op{set("x", 3), set("old", 2)}, newer: 1, want: "x"},
		{name: "older failure comes later", ops: []op{set("x", 3), fail(broken, 2)}, newer: 1, want: "x"},
		{name: "same moment twice", ops: []op{set("x", 2), set("y", 2)}, newer: 1, want: "y"},
		{name: "deleted", ops: []op{set("x", 0), gone(2)}, newer: 1, want: ""},
		{name: "deleted before what is wanted", ops: []op{set("x", 0), gone(1)}, newer: 1, waits: true},
		{name: "older deletion comes later", ops: []op{set("x", 3), gone(2)}, newer: 1, want: "x"},
		{name: "inspection from before the deletion comes later", ops: []op{gone(3), set("old", 2)}, newer: 1, want: ""},
		{name: "inspection from before a list without the pod comes later", ops: []op{global(3), set("old", 2)}, newer: 1, want: ""},
		{name: "deleted and put back", ops: []op{set("x", 0), gone(2), set("y", 3)}, newer: 2, want: "y"},
		{name: "held, global time newer", ops: []op{set("x", 0), hold(2), global(2)}, newer: 1, waits: true},
		{name: "new and held, global time newer", ops: []op{hold(2), global(2)}, newer: 1, waits: true},
		{name: "held, then inspected", ops: []op{set("x", 0), hold(2), global(2), set("y", 3)}, newer: 1, want: "y"},
		{name: "held, then inspected from before", ops: []op{set("x", 0), hold(3), global(3), set("y", 2)}, newer: 2, waits: true},
		{name: "held, then failed", ops: []op{set("x", 0), hold(2), global(2), fail(broken, 3)}, newer: 1, want: "x", err: broken},
		{name: "held, then deleted", ops: []op{set("x", 0), hold(2), global(2), gone(3)}, newer: 1, want: ""},
		{name: "held from before an inspection", ops: []op{set("x", 3), hold(2), global(4)}, newer: 3, want: "x"},
		{name: "global time goes back", ops: []op{set("x", 0), global(3), global(1)}, newer: 2, want: "x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Run("ready", func(t *testing.T) {
				c := NewCache()
				for _, op := range test.ops {
					op(c)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel() // whoever would wait gives up
				got, err := c.GetNewerThan(ctx, "a", at(test.newer))
				if waited := errors.Is(err, context.Canceled); waited != test.waits {
					t.Fatalf("waited = %v, want %v", waited, test.waits)
				}
				if !test.waits && (got.Name != test.want || !errors.Is(err, test.err)) {
					t.Errorf("got %q, %v, want %q, %v", got.Name, err, test.want, test.err)
				}
			})
			t.Run("waiting", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := NewCache()
					ctx, cancel := context.WithCancel(t.Context())
					var done atomic.Bool
					go func() {
						_, err := c.GetNewerThan(ctx, "a", at(test.newer))
						if waited := errors.Is(err, context.Canceled); waited != test.waits {
							t.Errorf("gave up = %v, want %v", waited, test.waits)
						}
						done.Store(true)
					}()
					synctest.Wait()
					for _, op := range test.ops {
						op(c)
					}
					synctest.Wait()
					if done.Load() == test.waits {
						t.Errorf("woken = %v, want %v", done.Load(), !test.waits)
					}
					cancel()
					synctest.Wait()
					if n := len(c.waiters); n != 0 {
						t.Errorf("%d pods have waiters left", n)
					}
				})
			})
		})
	}
}

func TestGet(t *testing.T) {
	broken := errors.New("runtime broke")
	c := NewCache()
	check := func(want *Status, wantErr error) {
		t.Helper()
		got, err := c.Get("a")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		if !errors.Is(err, wantErr) {
			t.Errorf("error = %v, want %v", err, wantErr)
		}
	}
	check(&Status{UID: "a"}, nil)
	c.Set("a", &Status{UID: "a", Name: "x"}, nil, at(1))
	check(&Status{UID: "a", Name: "x"}, nil)
	c.Set("a", nil, broken, at(2))
	check(&Status{UID: "a", Name: "x"}, broken)
	if c.Set("a", &Status{UID: "a", Name: "old"}, nil, at(1)) {
		t.Error("stored an inspection from before")
	}
	check(&Status{UID: "a", Name: "x"}, broken)
	if !c.Delete("a", at(3)) {
		t.Error("did not delete")
	}
	check(&Status{UID: "a"}, nil)
}

func TestGaveUp(t *testing.T) {
	c := NewCache()
	c.Set("a", &Status{UID: "a", Name: "x"}, nil, at(1))
	cause := errors.New("worker ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	got, err := c.GetNewerThan(ctx, "a", at(2))
	if !errors.Is(err, cause) {
		t.Errorf("error = %v, want %v", err, cause)
	}
	if got.Name != "x" {
		t.Errorf("status = %v, want what is known", got)
	}
}

// TestForgets holds that pods that went leave nothing behind.
func TestForgets(t *testing.T) {
	c := NewCache()
	for i := range 1000 {
		uid := types.UID(fmt.Sprint(i))
		switch i % 3 {
		case 0:
			c.Set(uid, &Status{UID: uid}, nil, at(1))
			c.Delete(uid, at(2))
		case 1:
			c.SetObservedTime(uid, at(2)) // never known
		case 2:
			c.Hold(uid, at(1))
			c.Delete(uid, at(2))
		}
	}
	c.UpdateTime(at(2))
	if len(c.entries) != 0 || len(c.nothing) != 0 || len(c.waiters) != 0 {
		t.Errorf("left: %d entries, %d of nothing, %d with waiters", len(c.entries), len(c.nothing), len(c.waiters))
	}
}

// TestModel compares the cache with a trivial model, by random operations: per
// pod, what was stored at which moment.
func TestModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	type model struct {
		name string
		mod  int // of the data
		asOf int // when it was known to be right
	}
	for range 300 {
		c, pods, globalTime := NewCache(), map[types.UID]model{}, 0
		c.UpdateTime(at(0))
		know := func(uid types.UID) model {
			m := pods[uid] // unknown: nothing, as of 0
			m.asOf = max(m.asOf, globalTime)
			return m
		}
		for step := range 60 {
			uid, when := types.UID(fmt.Sprint(random.IntN(3))), random.IntN(40)
			m := know(uid)
			switch random.IntN(4) {
			case 0:
				// The model refuses what is older than the data, and, of a pod
				// without data, older than the moment that is known of.
				if when < m.mod || m.name == "" && when < m.asOf {
					break
				}
				name := fmt.Sprint("s", step)
				c.Set(uid, &Status{UID: uid, Name: name}, nil, at(when))
				pods[uid] = model{name, when, max(m.asOf, when)}
			case 1:
				if when < m.asOf {
					break // as pleg, which deletes by a list newer than all it knows
				}
				c.Delete(uid, at(when))
				pods[uid] = model{"", when, when}
			case 2:
				if m.name != "" {
					c.SetObservedTime(uid, at(when))
					pods[uid] = model{m.name, m.mod, max(m.asOf, when)}
				}
			case 3:
				c.UpdateTime(at(when))
				globalTime = max(globalTime, when)
			}
			m = know(uid)
			got, err := c.Get(uid)
			if err != nil || got.Name != m.name {
				t.Fatalf("step %d: got %q, %v, want %q", step, got.Name, err, m.name)
			}
			wanted := random.IntN(40)
			c.mu.Lock()
			ready := c.readyLocked(uid, at(wanted))
			c.mu.Unlock()
			if want := m.asOf > wanted; ready != want {
				t.Fatalf("step %d: newer than %d is ready = %v, want %v (known as of %d)", step, wanted, ready, want, m.asOf)
			}
		}
	}
}

// TestWakesWhoIsDue has readers of random pods wait for random moments, some of
// which give up, while random things become known. After each of them nobody
// waits who could be served.
func TestWakesWhoIsDue(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			type reader struct {
				uid    types.UID
				wanted time.Time
				done   atomic.Bool
				cancel context.CancelFunc
			}
			c := NewCache()
			var readers []*reader
			come := func() {
				r := &reader{uid: types.UID(fmt.Sprint(random.IntN(4)))}
				if random.IntN(4) > 0 { // else the zero time, as of a worker that knows nothing
					r.wanted = at(random.IntN(40))
				}
				ctx, cancel := context.WithCancel(t.Context())
				r.cancel = cancel
				readers = append(readers, r)
				go func() {
					_, _ = c.GetNewerThan(ctx, r.uid, r.wanted)
					r.done.Store(true)
				}()
			}
			for step := range 60 {
				uid, when := types.UID(fmt.Sprint(random.IntN(4))), at(random.IntN(40))
				switch random.IntN(8) {
				case 0, 1, 2:
					come()
				case 3:
					c.Set(uid, &Status{UID: uid}, nil, when)
				case 4:
					c.UpdateTime(when)
				case 5:
					c.Delete(uid, when)
				case 6:
					c.Hold(uid, when)
				case 7:
					if len(readers) > 0 {
						gone := random.IntN(len(readers))
						readers[gone].cancel()
						readers = slices.Delete(readers, gone, gone+1)
					}
				}
				synctest.Wait()
				c.mu.Lock()
				for _, r := range readers {
					if ready := c.readyLocked(r.uid, r.wanted); ready && !r.done.Load() {
						t.Fatalf("step %d: a reader of %s for later than %v waits though it is ready", step, r.uid, r.wanted)
					}
				}
				c.mu.Unlock()
			}
			for _, r := range readers {
				r.cancel()
			}
			synctest.Wait()
			if len(c.waiters) != 0 {
				t.Errorf("%d pods have waiters left", len(c.waiters))
			}
		})
	}
}

// TestStress has thousands of waiters of a thousand pods, a third of which give
// up at random, and a writer. Every other one is served, and nothing is left.
func TestStress(t *testing.T) {
	const pods, waiters = 1000, 5000
	c := NewCache()
	begin := time.Now()
	var served, left atomic.Int64
	var readers sync.WaitGroup
	for i := range waiters {
		uid := types.UID(fmt.Sprint(i % pods))
		readers.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				go cancel()
			}
			if _, err := c.GetNewerThan(ctx, uid, begin.Add(time.Duration(i%7)*time.Millisecond)); err != nil {
				left.Add(1)
			} else {
				served.Add(1)
			}
		})
	}
	end := begin.Add(time.Hour)
	for round := range 5 {
		now := begin.Add(time.Duration(round) * 2 * time.Millisecond)
		for i := range pods {
			uid := types.UID(fmt.Sprint(i))
			switch (i + round) % 4 {
			case 0:
				c.Set(uid, &Status{UID: uid}, nil, now)
			case 1:
				c.SetObservedTime(uid, now)
			case 2:
				c.Delete(uid, now)
			case 3:
				c.Hold(uid, now)
			}
		}
		c.UpdateTime(now)
	}
	for i := range pods {
		c.Delete(types.UID(fmt.Sprint(i)), end)
	}
	c.UpdateTime(end)
	readers.Wait()
	if served.Load() < waiters*2/3 {
		t.Errorf("%d served, %d gave up: some gave up that were not told to", served.Load(), left.Load())
	}
	if len(c.entries) != 0 || len(c.waiters) != 0 {
		t.Errorf("left: %d entries, %d with waiters", len(c.entries), len(c.waiters))
	}
}

func BenchmarkUpdateTime(b *testing.B) {
	for _, waiters := range []int{0, 1000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			c := NewCache()
			for i := range waiters {
				c.wait(types.UID(fmt.Sprint(i)), at(1<<30))
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				c.UpdateTime(at(n))
			}
		})
	}
}
