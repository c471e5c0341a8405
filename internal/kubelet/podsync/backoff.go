package podsync

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A backoff says how long to pause before something that failed is tried
// again: first, then twice as long each time, up to max. What went well for
// longer than reset starts over. As upstream's, the first failure costs no pause.
//
// It may be used from any goroutine.
type backoff struct {
	first, max, reset time.Duration

	mu struct {
		sync.Mutex
		pods map[types.UID]map[string]delay
	}
}

type delay struct {
	pause time.Duration
	since time.Time // when it was last lengthened
}

func newBackoff(first, longest, reset time.Duration) *backoff {
	b := &backoff{first: min(first, longest), max: longest, reset: reset}
	b.mu.pods = map[types.UID]map[string]delay{}
	return b
}

// until returns when the pause ends that began with a failure at failed, and
// how long it is; zero if there is none.
func (b *backoff) until(pod types.UID, what string, failed time.Time) (time.Time, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, ok := b.mu.pods[pod][what]
	if !ok || b.expired(d, failed) {
		return time.Time{}, 0
	}
	return failed.Add(d.pause), d.pause
}

// lengthen notes another try after a failure at failed.
func (b *backoff) lengthen(pod types.UID, what string, failed, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, ok := b.mu.pods[pod][what]
	if !ok || b.expired(d, failed) {
		d.pause = b.first
	} else {
		d.pause = min(d.pause*2, b.max)
	}
	d.since = now
	if b.mu.pods[pod] == nil {
		b.mu.pods[pod] = map[string]delay{}
	}
	b.mu.pods[pod][what] = d
}

func (b *backoff) expired(d delay, failed time.Time) bool { return failed.Sub(d.since) > b.reset }

// forget drops all that is known of a pod.
func (b *backoff) forget(pod types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.pods, pod)
}
