package volumestats

import (
	"context"
	"errors"
	"io/fs"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

const (
	// lookAgain is how long a volume that is not there yet is waited for before the
	// next look, and a new pod whose coming nobody told.
	lookAgain = time.Second
	// savePeriod is how often figures are written while the agent runs.
	savePeriod = 10 * time.Minute
	// giveUpFactor is after how many deadlines a measurement is told to end.
	giveUpFactor = 10
)

var errLate = errors.New("it has not ended in time")

// Run measures until ctx is done. It does not wait for calls that hang.
func (a *Analyzer) Run(ctx context.Context) error {
	if a.off {
		a.cfg.Log.Info("volumes are measured only for limits and when the disk is low: volumeStatsAggPeriod is negative")
	}
	a.load()
	a.saved = time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var next time.Time // of the next look
	for {
		select {
		case <-ctx.Done():
			for _, t := range a.tries {
				t.cancel()
			}
			a.save()
			return nil
		case r := <-a.done:
			if at := a.take(ctx, r); at.Before(next) {
				next = at
			}
		case <-a.bell:
			next = a.look(ctx, time.Now())
		case <-timer.C:
			next = a.look(ctx, time.Now())
		}
		if time.Since(a.saved) > savePeriod {
			a.save()
		}
		timer.Reset(time.Until(next))
	}
}

// look forgets pods that are gone, gives up on tries that are late, starts those that
// are due, and returns when to look again.
func (a *Analyzer) look(ctx context.Context, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := now.Add(a.cfg.Period)
	wait := func(at time.Time) {
		if at.Before(next) {
			next = at
		}
	}
	pods := a.cfg.Pods()
	a.forgetLocked(pods)
	a.queue = a.queue[:0]
	for path, t := range a.tries {
		switch late := t.began.Add(a.cfg.Deadline); {
		case t.late:
		case !now.Before(late):
			t.late = true
			a.lateLocked(path)
		default:
			wait(late)
		}
	}
	for _, pod := range pods {
		if len(pod.Spec.Volumes) == 0 {
			continue
		}
		if !a.off && a.updateLocked(pod) {
			wait(now.Add(lookAgain))
		}
		for name, v := range a.mu.pods[pod.UID] {
			switch {
			case v.trying || a.off && !v.wanted:
			case !v.wanted && now.Before(v.due):
				wait(v.due)
			case a.tries[v.path] != nil: // it hangs, or another pod has the same
				wait(now.Add(lookAgain))
			default:
				a.queue = append(a.queue, queued{pod.UID, name})
			}
		}
	}
	return earlier(next, a.startQueuedLocked(ctx, now))
}

// startQueuedLocked starts as many tries as may run of those that are due; the others are
// started when one has ended. It returns when to look again at the latest.
func (a *Analyzer) startQueuedLocked(ctx context.Context, now time.Time) (next time.Time) {
	next = now.Add(a.cfg.Period)
	running := 0
	for _, t := range a.tries {
		if !t.late {
			running++
		}
	}
	for len(a.queue) > 0 && running < a.cfg.Parallel {
		first := a.queue[0]
		a.queue = a.queue[1:]
		v := a.mu.pods[first.uid][first.name]
		switch {
		case v == nil || v.trying:
		case a.tries[v.path] != nil: // another pod has the same, and is first
			next = earlier(next, now.Add(lookAgain))
		default:
			v.trying, v.wanted = true, false
			running++
			a.startLocked(ctx, first.uid, first.name, v.path)
			next = earlier(next, now.Add(a.cfg.Deadline))
		}
	}
	return next
}

// updateLocked brings what is known of which volumes a pod has up to date. missing is
// whether some are not there yet.
func (a *Analyzer) updateLocked(pod *v1.Pod) (missing bool) {
	known := a.mu.pods[pod.UID]
	if known == nil {
		known = map[string]*volume{}
		a.mu.pods[pod.UID] = known
	}
	if len(known) == len(pod.Spec.Volumes) && allPlaced(known) {
		return false
	}
	there := a.cfg.Paths.Paths(pod.UID)
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		path, ok := there[name]
		if !ok {
			missing = true
			continue
		}
		if known[name] == nil {
			known[name] = &volume{}
		}
		known[name].path = path
	}
	return missing
}

// allPlaced reports whether the paths of all volumes are known: those that come from
// the file have none yet.
func allPlaced(known map[string]*volume) bool {
	for _, v := range known {
		if v.path == "" {
			return false
		}
	}
	return true
}

func (a *Analyzer) forgetLocked(pods []*v1.Pod) {
	if len(pods) == 0 && len(a.mu.pods) == 0 {
		return
	}
	wanted := make(map[types.UID]struct{}, len(pods))
	for _, pod := range pods {
		wanted[pod.UID] = struct{}{}
	}
	for uid, volumes := range a.mu.pods {
		if _, ok := wanted[uid]; ok {
			continue
		}
		// Before the sources have answered there are no pods: what came from the file
		// waits for them.
		placed := len(volumes) == 0
		for _, v := range volumes {
			placed = placed || v.path != "" || time.Since(v.measured) > keptPeriods*a.cfg.Period
		}
		if placed {
			for _, v := range volumes {
				v.tries++ // nobody is to wait for it
			}
			delete(a.mu.pods, uid)
			a.changed = true
			a.endedLocked()
		}
	}
}

// startLocked measures a volume in a goroutine that is not waited for: the call may
// never return.
func (a *Analyzer) startLocked(ctx context.Context, uid types.UID, name, path string) {
	within, cancel := context.WithTimeout(ctx, giveUpFactor*a.cfg.Deadline)
	a.tries[path] = &try{cancel: cancel, began: time.Now()}
	go func() {
		defer cancel()
		began := time.Now()
		usage, err := a.cfg.Measurer.Measure(within, path)
		select {
		case a.done <- result{uid, name, path, usage, err, time.Since(began)}:
		case <-ctx.Done(): // nobody listens any more
		}
	}()
}

// lateLocked marks the volumes at a path that does not answer.
func (a *Analyzer) lateLocked(path string) {
	for uid, volumes := range a.mu.pods {
		for name, v := range volumes {
			if v.path == path && v.trying {
				v.tries++
				a.failLocked(uid, name, v, errLate)
			}
		}
	}
	a.endedLocked()
}

// endedLocked wakes those that wait for a measurement.
func (a *Analyzer) endedLocked() {
	close(a.mu.ended)
	a.mu.ended = make(chan struct{})
}

// failLocked notes that a try has failed, and logs it if the one before had not
// and it is not merely gone or without size.
func (a *Analyzer) failLocked(uid types.UID, name string, v *volume, err error) {
	silent := errors.Is(err, fs.ErrNotExist) || errors.Is(err, podvolumes.ErrNoUsage)
	if v.failed == nil && !silent {
		a.cfg.Log.Warn("a volume cannot be measured, its last figures stay", "podUID", uid, "volume", name, "err", err)
	}
	v.failed = err
}

// take takes what a try has brought, starts others in its place, and returns when to look
// again at the latest.
func (a *Analyzer) take(ctx context.Context, r result) time.Time {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.tries, r.path)
	next := now.Add(a.cfg.Period)
	if v := a.mu.pods[r.uid][r.name]; v != nil && v.path == r.path { // else it is gone
		a.takeLocked(v, r, now)
		next = v.due
	}
	return earlier(next, a.startQueuedLocked(ctx, now))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (a *Analyzer) takeLocked(v *volume, r result, now time.Time) {
	defer a.endedLocked()
	v.trying, v.took, v.ended = false, a.cost(r), now
	v.tries++
	v.due = nextAt(r.uid, now, v.took, a.cfg.Period)
	if r.err != nil {
		a.failLocked(r.uid, r.name, v, r.err)
		return
	}
	if v.failed != nil {
		a.cfg.Log.Info("a volume can be measured again", "podUID", r.uid, "volume", r.name)
	}
	if abnormal := r.usage.Abnormal; abnormal != nil && *abnormal != "" && (v.usage.Abnormal == nil || *v.usage.Abnormal != *abnormal) {
		a.tellAbnormal(r.uid, r.name, *abnormal)
	}
	v.usage, v.measured, v.failed, a.changed = r.usage, now, nil, true
	a.took.WithLabelValues(source(r.usage)).Observe(r.took.Seconds())
}

// tellAbnormal tells, in upstream's words, that something is wrong with a volume, when
// it begins or becomes something else.
func (a *Analyzer) tellAbnormal(uid types.UID, name, why string) {
	a.cfg.Log.Warn("a volume is not well, says its driver", "podUID", uid, "volume", name, "why", why)
	if a.cfg.Events == nil {
		return
	}
	for _, pod := range a.cfg.Pods() {
		if pod.UID == uid {
			a.cfg.Events.Eventf(pod, v1.EventTypeWarning, reason.VolumeConditionAbnormal, "Volume %s: %s", name, why)
		}
	}
}

// cost returns how long a try has worked. One that went on after it was told to end has
// waited for a device or a server, and so has all that takes long but a count.
func (a *Analyzer) cost(r result) time.Duration {
	isCount := r.err == nil && r.usage.Method == podvolumes.ByWalk || errors.Is(r.err, context.DeadlineExceeded)
	if !isCount || r.took > (giveUpFactor+1)*a.cfg.Deadline {
		return 0
	}
	return r.took
}

// source is a method in the words of upstream's metric.
func source(u podvolumes.Usage) string {
	switch u.Method {
	case podvolumes.ByQuota:
		return "fsquota"
	case podvolumes.ByFilesystem:
		return "statfs"
	case podvolumes.ByDevice:
		return "block"
	case podvolumes.ByWalk:
		return "du"
	default:
		return u.Driver
	}
}
