package node

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/node/board"
)

// watch returns run with its life told to the board: starting, running once
// ready is closed, stopped or failing when it returns. ready may be nil.
func watch(b *board.Board, name string, run func(context.Context) error, ready <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		b.SetPart(name, control.Starting, "")
		ended := make(chan error, 1)
		go func() { ended <- run(ctx) }()
		if ready == nil {
			b.SetPart(name, control.Running, "")
		}
		for {
			select {
			case <-ready:
				b.SetPart(name, control.Running, "")
				ready = nil
			case err := <-ended:
				state, message := control.Stopped, ""
				if err != nil && !errors.Is(err, context.Canceled) {
					state, message = control.Failing, err.Error()
				}
				b.SetPart(name, state, message)
				return err
			}
		}
	}
}
