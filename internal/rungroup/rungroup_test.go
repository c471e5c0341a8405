package rungroup_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast/internal/rungroup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trace collects what happened, in order.
type trace struct {
	mu    sync.Mutex
	lines []string
}

func (tr *trace) add(s string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.lines = append(tr.lines, s)
}

func (tr *trace) part(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		tr.add("start " + name)
		<-ctx.Done()
		tr.add("stop " + name)
		return ctx.Err()
	}
}

func TestStopsInReverseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr trace
		var g rungroup.Group
		ready := make(chan struct{})
		g.AddReady("store", tr.part("store"), ready)
		g.Add("server", tr.part("server"))

		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { result <- g.Run(ctx) }()
		synctest.Wait()
		if want := []string{"start store"}; !slices.Equal(tr.lines, want) {
			t.Errorf("before ready: got %q, want %q", tr.lines, want)
		}
		close(ready)
		synctest.Wait()
		cancel()
		if err := <-result; err != nil {
			t.Errorf("Run: %v, want nil", err)
		}
		want := []string{"start store", "start server", "stop server", "stop store"}
		if !slices.Equal(tr.lines, want) {
			t.Errorf("got %q, want %q", tr.lines, want)
		}
	})
}

func TestEarlyEndStopsTheRest(t *testing.T) {
	broken := errors.New("disk full")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"with an error":    {broken, "store: disk full"},
		"without an error": {nil, "store: stopped early"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tr trace
				var g rungroup.Group
				g.Add("server", tr.part("server"))
				g.Add("store", func(context.Context) error {
					time.Sleep(time.Second)
					return test.err
				})
				err := g.Run(t.Context())
				if err == nil || err.Error() != test.want {
					t.Errorf("Run: %v, want %v", err, test.want)
				}
				if want := []string{"start server", "stop server"}; !slices.Equal(tr.lines, want) {
					t.Errorf("got %q, want %q", tr.lines, want)
				}
			})
		})
	}
}

func TestEndBeforeReady(t *testing.T) {
	var g rungroup.Group
	g.AddReady("store", func(context.Context) error { return errors.New("locked") }, make(chan struct{}))
	g.Add("server", func(context.Context) error { t.Error("server started without its store"); return nil })
	if err := g.Run(t.Context()); err == nil || err.Error() != "store: locked" {
		t.Errorf("Run: %v, want store: locked", err)
	}
}
