// Package podsource delivers the pods of each source: static pods from the
// documents of a manifest folder or a URL, and the API's pods that are bound to
// this node. The first delivery is the full set of the source; what a watch tells
// after that is delivered as what changed.
//
// [Static] and [API] are two stages. Each calls Deliver from one goroutine, its
// Run, one call at a time; a slow Deliver costs what was in between, never the last.
package podsource

import (
	"context"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// A Deliver takes what a source says.
type Deliver func(ctx context.Context, d desired.Delivery)

// latest passes on the newest of many values: the reader never sees one that
// was replaced meanwhile.
type latest[T any] struct {
	mu    sync.Mutex
	value T
	any   bool      // there is one
	wake  wake.Bell // a value is there
}

func newLatest[T any]() *latest[T] { return &latest[T]{wake: wake.NewBell()} }

func (l *latest[T]) put(v T) {
	l.mu.Lock()
	l.value, l.any = v, true
	l.mu.Unlock()
	l.wake.Ring()
}

// again has the value got once more, if there is one.
func (l *latest[T]) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.any {
		l.wake.Ring()
	}
}

// get waits for a value that was not got before, or is to be got again. It reports false when ctx is
// done.
func (l *latest[T]) get(ctx context.Context) (T, bool) {
	select {
	case <-ctx.Done():
		var none T
		return none, false
	case <-l.wake:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, true
}
