package stats

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// TestGone holds that a pod that is gone leaves no series and no entry behind.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var gone atomic.Bool
		cfg := w.config()
		registry := prometheus.NewPedanticRegistry()
		cfg.Metrics = registry
		cfg.Pods = func() []*v1.Pod {
			if gone.Load() {
				return nil
			}
			return w.Pods()
		}
		c, stop := run(t, cfg)
		defer stop()
		last(t, c)
		const claims, volumes = "kubelet_volume_stats_used_bytes", "holdfast_volume_used_bytes"
		if all := names(t, registry); !slices.Contains(all, claims) || !slices.Contains(all, volumes) {
			t.Fatalf("series %v", all)
		}
		gone.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if all := names(t, registry); slices.Contains(all, claims) || slices.Contains(all, volumes) {
			t.Errorf("series of a pod that is gone: %v", all)
		}
		if pods := last(t, c).Summary.Pods; len(pods) != 0 {
			t.Errorf("the Summary has %+v", pods)
		}
	})
}

// TestSinceStart holds that a container that has not started has no start: not one of
// 1970, and none before.
func TestSinceStart(t *testing.T) {
	for name, test := range map[string]struct {
		at   time.Time
		want bool
	}{
		"a start":                      {time.Unix(1_600_000_000, 0), true},
		"none":                         {time.Time{}, false},
		"what a runtime says for none": {time.Unix(0, 0), false},
		"a clock that was not set":     {time.Unix(-5, 0), false},
	} {
		if got := sinceStart(test.at); got.IsZero() == test.want || test.want && !got.Time.Equal(test.at) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
