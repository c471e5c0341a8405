package critest

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pleg"
)

// testGenerator follows the life of a pod by the events of a generator alone,
// with the runtime's own stream or without one.
func testGenerator(t *testing.T, s subject) {
	cache := observed.NewCache()
	g := pleg.New(pleg.Config{Runtime: s.Runtime, Cache: cache})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	defer wg.Wait()
	defer cancel()

	p := newPod(t, s)
	follow := func(until func(observed.Event, *observed.Status) bool) {
		t.Helper()
		for {
			e := <-g.Events()
			if e.UID != p.uid {
				continue
			}
			got, err := cache.Get(p.uid)
			if err != nil {
				t.Fatal(err)
			}
			if until(e, got) {
				return
			}
		}
	}
	follow(func(_ observed.Event, got *observed.Status) bool { return got.ReadySandbox() != nil })
	id := p.start("runs")
	follow(func(_ observed.Event, got *observed.Status) bool {
		c := got.Container("runs")
		return c != nil && c.State == observed.Running
	})
	if err := s.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	follow(func(_ observed.Event, got *observed.Status) bool {
		return got.Container("runs").State == observed.Exited
	})
	if err := s.RemoveSandbox(t.Context(), p.sandbox); err != nil {
		t.Fatal(err)
	}
	follow(func(e observed.Event, _ *observed.Status) bool { return e.Kind == observed.PodGone })
	if err := g.Healthy(); err != nil {
		t.Errorf("unhealthy: %v", err)
	}
}
