package eviction

import (
	"testing"
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TestMemoryOfPods holds that what pods have left is of what they may have together.
func TestMemoryOfPods(t *testing.T) {
	for name, test := range map[string]struct{ limit, wantLeft, wantAll int64 }{
		"no limit":             {0, 900, 1000},
		"what is not reserved": {300, 200, 300},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Manager{cfg: Config{Cgroups: newHost(subjectOf("p", memory(100))), PodMemory: test.limit}, unread: map[string]string{}}
			seen := observations{}
			m.observeMachine(seen, &stats.NodeStats{Memory: &stats.MemoryStats{AvailableBytes: new(uint64(400)), WorkingSetBytes: new(uint64(600))}}, time.Now())
			got := seen[AllocatableMemoryAvailable]
			if got.available != test.wantLeft || got.capacity != test.wantAll {
				t.Errorf("got %d of %d, want %d of %d", got.available, got.capacity, test.wantLeft, test.wantAll)
			}
		})
	}
}

// TestPodsUnbounded holds that pods without a limit of their own do not come close to
// it.
func TestPodsUnbounded(t *testing.T) {
	for name, test := range map[string]struct{ unbounded, want bool }{"bounded": {false, true}, "unbounded": {true, false}} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse(Settings{PodsUnbounded: test.unbounded})
			if err != nil {
				t.Fatal(err)
			}
			got := false
			for _, threshold := range p.thresholds {
				got = got || threshold.signal == AllocatableMemoryAvailable
			}
			if got != test.want {
				t.Errorf("got a threshold of %s: %v, want %v", AllocatableMemoryAvailable, got, test.want)
			}
		})
	}
}
