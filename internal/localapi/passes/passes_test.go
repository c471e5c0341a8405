package passes

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var passes atomic.Int32
		ended := make(chan error, 1)
		loop := Loop{What: "try", Log: slog.New(slog.DiscardHandler), Pass: func(context.Context) error {
			if passes.Add(1) < 3 {
				return errors.New("not yet")
			}
			return nil
		}}
		go func() { ended <- loop.Run(ctx) }()
		synctest.Wait()
		if got := passes.Load(); got != 1 {
			t.Errorf("%d passes at first, want 1", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := passes.Load(); got != 3 {
			t.Errorf("%d passes, want two that fail and a third, and none without a change", got)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v, want the context's error", err)
		}
	})
}
