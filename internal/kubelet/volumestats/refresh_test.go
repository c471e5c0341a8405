package volumestats

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// refresh asks for figures of now, and returns how long that took.
func refresh(t *testing.T, a *Analyzer, pods ...*v1.Pod) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	a.Refresh(ctx, 5*time.Second, pods...)
	return time.Since(began)
}

// TestRefresh holds that who needs figures of now gets them, by the measurements that
// there are, and that nothing else is measured for it.
func TestRefresh(t *testing.T) {
	for name, period := range map[string]time.Duration{"on": 0, "off": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				p := pod("u", "v", "late", "memory")
				p.Spec.Volumes[2].EmptyDir.Medium = v1.StorageMediumMemory
				w.pods, w.hidden["/u/late"], w.takes = []*v1.Pod{p, pod("o", "v")}, true, 100*time.Millisecond
				cfg := w.config()
				cfg.Period = period
				a, stop := run(t, cfg)
				defer stop()
				pass(20 * time.Second)
				w.set(func() { w.calls = nil })
				if took := refresh(t, a, p); took != 100*time.Millisecond {
					t.Errorf("it took %v, want as long as one measurement", took)
				}
				if got := a.Volumes(p); len(got) == 0 || got[0].Name != "v" || got[0].Stale || time.Since(got[0].Time) != 0 {
					t.Errorf("volumes %+v, want v of now", got)
				}
				pass(4 * time.Second)
				if took := refresh(t, a, p); took != 0 {
					t.Errorf("with figures that are new it took %v", took)
				}
				pass(2 * time.Second)
				refresh(t, a, p)
				w.set(func() {
					if diff := cmp.Diff(w.calls, []string{"/u/v", "/u/v"}); diff != "" {
						t.Errorf("measured (-got +want):\n%s", diff)
					}
				})
				pass(time.Hour)
				if n := w.count("/o/v"); (n > 0) != (period == 0) {
					t.Errorf("another pod was measured %d times", n)
				}
			})
		})
	}
}

// TestRefreshOfMuch holds that what takes long to measure is not measured for everybody
// who asks, and that its figures are good for as long.
func TestRefreshOfMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := pod("u", "big")
		w.pods, w.takes = []*v1.Pod{p}, 30*time.Second
		a, stop := run(t, w.config())
		defer stop()
		pass(time.Minute)
		for range 6 * 60 {
			refresh(t, a, p)
			if got := a.Volumes(p); len(got) != 1 || got[0].Stale {
				t.Fatalf("volumes %+v, want figures that are good", got)
			}
			pass(10 * time.Second)
		}
		if n := w.count("/u/big"); n < 9 || n > 13 {
			t.Errorf("%d walks of 30 s in an hour, want a tenth of the time", n)
		}
	})
}

// TestVeryMuch holds that a count that takes longer than a call may comes to its end, is
// given up at last, and keeps nobody else waiting.
func TestVeryMuch(t *testing.T) {
	for name, test := range map[string]struct {
		takes time.Duration
		known bool
	}{
		"ten minutes": {10 * time.Minute, true},
		"too much":    {time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				p, other := pod("u", "big"), pod("o", "v")
				w.pods, w.takes = []*v1.Pod{p}, test.takes
				cfg := w.config()
				cfg.Parallel = 1
				a, stop := run(t, cfg)
				defer stop()
				pass(time.Second)
				w.set(func() { w.pods, w.takes = append(w.pods, other), 0 })
				pass(4 * time.Minute)
				if n := w.count("/o/v"); n == 0 {
					t.Error("another volume waits for it")
				}
				pass(20 * time.Minute)
				if got := a.Volumes(p); (len(got) == 1 && !got[0].Stale) != test.known {
					t.Errorf("volumes %+v, want figures: %v", got, test.known)
				}
				for range 30 {
					refresh(t, a, p)
					pass(10 * time.Second)
				}
				if n := w.count("/u/big"); n != 1 {
					t.Errorf("%d counts in half an hour", n)
				}
			})
		})
	}
}

// TestRefreshEnds holds that nobody waits for what hangs, fails or is gone.
func TestRefreshEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		bad, hung, gone, other := pod("bad", "v"), pod("hung", "v"), pod("gone", "v"), pod("o", "v")
		hang := make(chan struct{})
		w.pods, w.fail["/bad/v"], w.hang["/hung/v"] = []*v1.Pod{bad, hung, other}, errors.New("input/output error"), hang
		cfg := w.config()
		cfg.Deadline = 3 * time.Second
		a, stop := run(t, cfg)
		defer stop()
		defer close(hang)
		pass(time.Second)
		if took := refresh(t, a, bad, gone, other); took != 0 {
			t.Errorf("one that fails and one that is gone took %v", took)
		}
		if took := refresh(t, a, hung); took != 2*time.Second {
			t.Errorf("one that hangs took %v, want what is left of its deadline", took)
		}
		if took := refresh(t, a, hung); took != 0 {
			t.Errorf("the second time it took %v", took)
		}
		if n := w.count("/hung/v"); n != 1 {
			t.Errorf("%d tries of what hangs", n)
		}
	})
}
