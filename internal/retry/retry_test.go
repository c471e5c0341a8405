package retry

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestPause(t *testing.T) {
	for _, test := range []struct {
		failures       int
		first, longest time.Duration
		want           time.Duration
	}{
		{1, time.Second, time.Minute, time.Second},
		{2, time.Second, time.Minute, 2 * time.Second},
		{6, time.Second, time.Minute, 32 * time.Second},
		{7, time.Second, time.Minute, time.Minute},
		{1, time.Minute, time.Second, time.Second},
		{math.MaxInt, time.Millisecond, math.MaxInt64, math.MaxInt64},
		{math.MaxInt, time.Millisecond, 10 * time.Second, 10 * time.Second},
	} {
		if got := Pause(test.failures, test.first, test.longest); got != test.want {
			t.Errorf("after %d failures from %v to %v: got %v, want %v", test.failures, test.first, test.longest, got, test.want)
		}
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !Sleep(t.Context(), time.Second) || time.Since(began) != time.Second {
			t.Errorf("slept for %v, want a second", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if Sleep(ctx, time.Hour) || time.Since(began) != time.Second {
			t.Errorf("slept for %v, want that it ends with ctx", time.Since(began))
		}
	})
}
