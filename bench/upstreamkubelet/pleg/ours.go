package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pleg"
)

// ours is our generator over a machine. Its lists wait at a gate, so that each
// one is of its own time.
type ours struct {
	*machine
	generator *pleg.Generator
	waits     chan struct{} // a list waits
	gate      chan struct{} // it may go on
	ended     chan error
	cancel    context.CancelFunc
}

func newOurs(ctx context.Context, m *machine) *ours {
	o := &ours{machine: m, waits: make(chan struct{}), gate: make(chan struct{}), ended: make(chan error, 1)}
	ctx, o.cancel = context.WithCancel(ctx)
	o.generator = pleg.New(pleg.Config{Runtime: o, Cache: observed.NewCache(), Period: time.Nanosecond})
	go func() { o.ended <- o.generator.Run(ctx) }()
	<-o.waits
	o.relist(len(m.uids)) // everything is new
	return o
}

func (o *ours) close() error {
	o.cancel()
	return <-o.ended
}

// renew lets the list that waits go: it began before the inspections that came
// after the last one, so what it shows may be older than what is known, and
// counts for nothing. The next one, which then waits, is a new one.
func (o *ours) renew() {
	o.gate <- struct{}{}
	<-o.waits
}

// relist lets one list go, and returns when it and its events are dealt with.
func (o *ours) relist(events int) {
	o.gate <- struct{}{}
	waits := o.waits
	for events > 0 || waits != nil {
		select {
		case <-o.generator.Events():
			events--
		case <-waits:
			waits = nil
		}
	}
}

// Pods is of the runtime that the generator asks.
func (o *ours) Pods(ctx context.Context) ([]observed.Pod, error) {
	for _, step := range []func() bool{
		func() bool {
			select {
			case o.waits <- struct{}{}:
				return true
			case <-ctx.Done():
				return false
			}
		},
		func() bool {
			select {
			case <-o.gate:
				return true
			case <-ctx.Done():
				return false
			}
		},
	} {
		if !step() {
			return nil, ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.listed), nil
}

// Inspect is of the runtime that the generator asks.
func (o *ours) Inspect(ctx context.Context, uid types.UID) (*observed.Status, error) {
	if err := o.wait(ctx); err != nil {
		return nil, fmt.Errorf("inspect pod %s: %w", uid, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inspected[uid], nil
}

// Events is of the runtime that the generator asks: it has no stream.
func (*ours) Events(context.Context, func(*runtimeapi.ContainerEventResponse)) error {
	return observed.ErrNoEvents
}
