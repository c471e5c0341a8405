package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/node/board"
)

func TestWatchTellsALife(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want control.PartState
	}{
		"cancelled": {context.Canceled, control.Stopped},
		"ended":     {nil, control.Stopped},
		"failed":    {errors.New("disk full"), control.Failing},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := board.New("store")
				is := func(want control.PartState) {
					t.Helper()
					synctest.Wait()
					if got := b.Parts()[0].State; got != want {
						t.Errorf("got %q, want %q", got, want)
					}
				}
				is(control.Waiting)
				ready, end := make(chan struct{}), make(chan error)
				done := make(chan error)
				go func() {
					done <- watch(b, "store", func(context.Context) error { return <-end }, ready)(t.Context())
				}()
				is(control.Starting)
				close(ready)
				is(control.Running)
				end <- test.err
				if err := <-done; !errors.Is(err, test.err) {
					t.Errorf("got %v, want %v", err, test.err)
				}
				is(test.want)
			})
		})
	}
}
