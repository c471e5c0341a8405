// Package retry is how long to wait before something that failed is tried again.
package retry

import (
	"context"
	"time"
)

// Pause returns the pause after so many failures in a row, from 1: first, and
// twice as long each time, up to longest.
func Pause(failures int, first, longest time.Duration) time.Duration {
	pause := first
	for range failures - 1 {
		if pause >= longest/2 {
			return longest
		}
		pause *= 2
	}
	return min(pause, longest)
}

// Sleep waits for d, and reports false if ctx is done first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
