// Package runtest runs a stage in a test.
package runtest

import (
	"context"
	"sync"
	"testing"
)

// Start runs a stage until stop is called or the test ends, and fails the test
// if the stage returns an error. stop returns when the stage has ended, and may
// be called again.
func Start(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	// Not the test's own context: that ends before the clean-up that may need the stage.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
