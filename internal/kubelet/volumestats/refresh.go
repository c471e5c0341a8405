package volumestats

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// Refresh has the emptyDirs on disk of pods measured of which the last try is older than
// age, and returns when that is done or has failed, or ctx is done. What takes long is
// tried more rarely: a tenth of the time. What a try that is not over when ctx is brings
// is there later.
func (a *Analyzer) Refresh(ctx context.Context, age time.Duration, pods ...*v1.Pod) {
	waiting, ended := a.want(age, pods)
	for len(waiting) > 0 {
		a.bell.Ring()
		select {
		case <-ctx.Done():
			return
		case <-ended:
		}
		waiting, ended = a.still(waiting)
	}
}

// want has volumes measured, and returns them with how many tries there were of each,
// and what is closed when there is one more.
func (a *Analyzer) want(age time.Duration, pods []*v1.Pod) (map[*volume]int, chan struct{}) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	waiting := map[*volume]int{}
	for _, pod := range pods {
		_ = a.updateLocked(pod) // what is not there yet takes nothing
		for i := range pod.Spec.Volumes {
			v := a.mu.pods[pod.UID][pod.Spec.Volumes[i].Name]
			switch {
			case v == nil || !podvolumes.OnDisk(&pod.Spec.Volumes[i]):
			case v.trying && errors.Is(v.failed, errLate): // it hangs
			case now.Sub(latest(v.ended, v.measured)) <= max(age, pauseFactor*v.took):
			default:
				v.wanted = !v.trying
				waiting[v] = v.tries
			}
		}
	}
	return waiting, a.mu.ended
}

// still returns those of which there was no other try yet.
func (a *Analyzer) still(waiting map[*volume]int) (map[*volume]int, chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for v, tries := range waiting {
		if v.tries != tries {
			delete(waiting, v)
		}
	}
	return waiting, a.mu.ended
}

// latest returns the later one. A figure of before a restart has no try.
func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
