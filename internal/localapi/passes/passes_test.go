package passes

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		passes := 0
		ended := make(chan error, 1)
		loop := Loop{What: "try", Log: slog.New(slog.DiscardHandler), Pass: func(context.Context) error {
			if passes++; passes < 3 {
				return errors.New("not yet")
			}
			return nil
		}}
		go func() { ended <- loop.Run(ctx) }()
		synctest.Wait()
		if passes != 1 {
			t.Errorf("%d passes at first, want 1", passes)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if passes != 3 {
			t.Errorf("%d passes, want two that fail and a third, and none without a change", passes)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v, want the context's error", err)
		}
	})
}
