// Package rungroup starts a program's long-lived parts in order and stops them
// in reverse order.
//
// A part may say when it is ready; the next part starts only then. A Group is
// built by one goroutine and Run once.
package rungroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// A Group is a list of named parts. The zero value is an empty group.
type Group struct {
	parts []part
}

type part struct {
	name  string
	run   func(context.Context) error
	ready <-chan struct{} // nil: ready at once
}

// Add appends a part. run must block until ctx is done and everything it
// started has ended.
func (g *Group) Add(name string, run func(context.Context) error) {
	g.parts = append(g.parts, part{name: name, run: run})
}

// AddReady appends a part that the parts after it need: they start only once
// ready is closed.
func (g *Group) AddReady(name string, run func(context.Context) error, ready <-chan struct{}) {
	g.parts = append(g.parts, part{name, run, ready})
}

// running is a part that was started.
type running struct {
	part
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Run starts every part and waits. When ctx is done or a part returns, the
// parts are stopped one by one, last added first, and Run returns what went
// wrong. A part that returns early is an error even if it returns nil.
func (g *Group) Run(ctx context.Context) error {
	base := context.WithoutCancel(ctx) // parts outlive ctx: each is stopped in its turn
	ended := make(chan *running, len(g.parts))
	var all []*running
	early := func() *running {
		for _, p := range g.parts {
			pctx, cancel := context.WithCancel(base)
			r := &running{part: p, cancel: cancel, done: make(chan struct{})}
			all = append(all, r)
			go func() {
				r.err = r.run(pctx)
				close(r.done)
				ended <- r
			}()
			if p.ready == nil {
				continue
			}
			select {
			case <-p.ready:
			case <-ctx.Done():
				return nil
			case e := <-ended:
				return e
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case e := <-ended:
			return e
		}
	}()
	if early != nil && early.err == nil {
		early.err = errors.New("stopped early")
	}

	var errs []error
	for _, r := range slices.Backward(all) {
		r.cancel()
		<-r.done
		if r.err != nil && !errors.Is(r.err, context.Canceled) {
			errs = append(errs, fmt.Errorf("%s: %w", r.name, r.err))
		}
	}
	return errors.Join(errs...)
}
