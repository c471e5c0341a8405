// Package passes runs a controller that looks at everything again whenever
// something that matters has changed: the loop that our own controllers share.
package passes

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-dev/holdfast/internal/retry"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

const (
	firstRetry = time.Second
	maxRetry   = 10 * time.Second
)

// A Loop says what is looked at, and how. All but Matters is required.
type Loop struct {
	// What is done, for people, as in "bind pods".
	What string
	Log  *slog.Logger // gets failures (warn)
	// Informers are watched; the caller starts them.
	Informers []cache.SharedIndexInformer
	// Matters reports whether an update may change what a pass does. nil: each may.
	Matters func(before, after any) bool
	// Pass does what is to do now. It is called by one goroutine at a time, and
	// again after a pause if it fails.
	Pass func(ctx context.Context) error
}

// Run makes a pass once the informers are filled, one after each change, and
// returns ctx's error when ctx is done. Changes during a pass lead to one more.
func (l Loop) Run(ctx context.Context) error {
	bell := wake.NewBell()
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { bell.Ring() },
		DeleteFunc: func(any) { bell.Ring() },
		UpdateFunc: func(before, after any) {
			if l.Matters == nil || l.Matters(before, after) {
				bell.Ring()
			}
		},
	}
	var synced []cache.InformerSynced
	for _, informer := range l.Informers {
		handler, err := informer.AddEventHandler(changed)
		if err != nil {
			return fmt.Errorf("%s: watch: %w", l.What, err)
		}
		defer func() { _ = informer.RemoveEventHandler(handler) }() // fails for no handler of ours
		synced = append(synced, handler.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	for failures := 0; ; {
		var again <-chan time.Time
		if err := l.Pass(ctx); err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			failures++
			l.Log.Warn("a pass failed; trying again", "err", fmt.Errorf("%s: %w", l.What, err))
			again = time.After(retry.Pause(failures, firstRetry, maxRetry))
		}
		select {
		case <-bell:
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
