package podworker

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/retry"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// A worker is the life of one pod UID:
//
//	         Create, Update
//	               │
//	               ▼
//	            Waiting ──────────────────────────┐ Kill, Remove
//	               │ no other static pod          │ deletion timestamp
//	               │ of this name before it       │ phase Succeeded, Failed
//	               ▼                              │
//	┌────────── Syncing ──────────────────────────┤
//	│ SyncPod ▲    │ SyncPod says terminal        │
//	└─────────┘    ▼                              │
//	┌──────── Terminating ◄───────────────────────┘ ◄── a pod that only the
//	│ SyncTerminating,    ▲                              runtime knows
//	│ SyncOrphan   │ fails│
//	└──────────────┼──────┘
//	               ▼ nothing runs any more
//	┌──────── Terminated
//	│ SyncTerminated      ▲
//	│              │ fails│
//	└──────────────┼──────┘
//	               ▼
//	            Finished ── Remove ──► forgotten ── put back ──► Waiting,
//	                                                             a new worker
//
// Finished remembers a UID so that it never starts again while its source has
// it. Put back while the old instance ends, a UID starts again when that has
// finished.
//
// All fields but the channels are guarded by Workers.mu.
type worker struct {
	uid      types.UID
	fullName string
	state    lifecycle.State
	pod      *v1.Pod           // nil for an orphan
	mirror   *v1.Pod           // nil: not known
	orphan   *lifecycle.Orphan // what nobody wants is to be cleared; nil: no
	removed  bool              // the source has it no more

	restart *lifecycle.Request // the next instance of this UID

	grace      int64     // seconds; 0: not terminating
	graceSince time.Time // since when the grace period runs; zero: not yet

	asked    time.Time          // when the worker was made
	begun    bool               // its first step has begun
	cancel   context.CancelFunc // ends the step in hand; nil: none
	last     time.Time          // end of the last step
	failures int                // steps that failed in a row
	failure  string             // how the last step failed
	failing  time.Time          // since when steps fail; zero: they do not

	wake  wake.Bell     // something was asked
	pokes wake.Bell     // something may have happened
	done  chan struct{} // closed when it has finished
}

// A job is one step, with all that it needs.
type job struct {
	ctx    context.Context //nolint:containedctx // the step's own, made and cancelled by the worker
	cancel context.CancelFunc
	state  lifecycle.State
	pod    *v1.Pod
	mirror *v1.Pod
	orphan *lifecycle.Orphan
	grace  int64     // seconds that are left
	after  time.Time // the status must be newer
	first  bool      // of its worker
}

// pokeFloor is how soon after a failed step a hint may cause the next one: a
// step that fails makes events itself.
const pokeFloor = time.Second

// minGrace is the shortest grace period, in seconds, as upstream's pod workers
// have it.
const minGrace = 1

// A pause is how long a worker waits before its next step.
type pause struct {
	time   time.Duration
	failed bool // hints have to wait, too
}

// accept takes a request into the worker, and says whether the step in hand
// has to end for it.
func (k *worker) accept(req *lifecycle.Request) (interrupt bool) {
	if req.Pod != nil && k.orphan == nil {
		k.pod = req.Pod
	}
	if req.Mirror != nil {
		k.mirror = req.Mirror
	}
	if req.Kind == lifecycle.Remove {
		k.removed = true
	}
	if k.state >= lifecycle.Terminated {
		return false
	}
	if k.state < lifecycle.Terminating && ends(req) {
		k.state = lifecycle.Terminating
		interrupt = true
	}
	if k.state == lifecycle.Terminating && k.shrinkGrace(req.Grace) {
		interrupt = true
	}
	return interrupt
}

// ends reports whether a request begins the end of a pod that was not ending.
func ends(req *lifecycle.Request) bool {
	switch req.Kind {
	case lifecycle.Kill, lifecycle.Remove:
		return true
	default:
		return req.Pod.DeletionTimestamp != nil || lifecycle.Terminal(req.Pod)
	}
}

// shrinkGrace sets the grace period from what the API server, the caller and
// the pod say, the first two before the third, and says whether it got shorter
// than it was. It never gets longer.
func (k *worker) shrinkGrace(asked *int64) bool {
	if k.pod == nil {
		k.grace = minGrace
		return false
	}
	var want *int64
	for _, s := range []*int64{k.pod.DeletionGracePeriodSeconds, asked} {
		if s != nil && (want == nil || *s < *want) {
			want = s
		}
	}
	if want == nil && k.grace == 0 {
		want = k.pod.Spec.TerminationGracePeriodSeconds
		if want == nil {
			want = new(int64(v1.DefaultTerminationGracePeriodSeconds))
		}
	}
	if want == nil {
		return false
	}
	was := k.grace
	if seconds := max(*want, minGrace); was == 0 || seconds < was {
		k.grace, k.graceSince = seconds, time.Time{}
		return was != 0
	}
	return false
}

// begin takes the next step, or returns nil if the worker has to wait for its
// turn.
func (w *Workers) begin(ctx context.Context, k *worker) *job {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k.state == lifecycle.Waiting {
		if turn := w.mu.turns[k.fullName]; staticpod.IsStatic(k.pod) && len(turn) > 0 && turn[0] != k {
			return nil
		}
		k.state = lifecycle.Syncing
	}
	j := &job{state: k.state, pod: k.pod, mirror: k.mirror, orphan: k.orphan, after: k.last, grace: k.grace, first: !k.begun}
	if j.first {
		k.begun = true
		w.metrics.begun(j, k.asked)
	}
	if k.state == lifecycle.Terminating {
		now := time.Now()
		if k.graceSince.IsZero() {
			k.graceSince = now
		}
		// A step that is made again does not start the grace period again.
		j.grace = max(k.grace-int64(now.Sub(k.graceSince)/time.Second), minGrace)
	}
	j.ctx, j.cancel = context.WithCancel(ctx)
	k.cancel = j.cancel
	return j
}

// settle moves the worker on after a step, and says when the next one is due,
// or that there is none.
func (w *Workers) settle(k *worker, j *job, terminal bool, err error) (next pause, more bool) {
	interrupted := j.ctx.Err() != nil
	j.cancel()
	now := time.Now()

	w.mu.Lock()
	defer w.mu.Unlock()
	k.cancel = nil
	k.last = now
	if err != nil {
		if interrupted {
			return pause{}, true // something else is to be done, at once
		}
		k.failures++
		w.logFailure(k, j, err)
		return pause{time: w.backoff(k), failed: true}, true
	}
	w.logRecovery(k)
	switch {
	case j.state == lifecycle.Syncing && k.state == lifecycle.Syncing && !terminal:
		return pause{time: w.resync(k, now)}, true
	case j.state == lifecycle.Syncing && k.state == lifecycle.Syncing:
		k.state = lifecycle.Terminating
		k.shrinkGrace(nil)
	case j.state == lifecycle.Terminating:
		k.state = lifecycle.Terminated
		if j.orphan != nil {
			return pause{}, w.finishLocked(k, now)
		}
	case j.state == lifecycle.Terminated && j.orphan == nil && k.removed:
		k.orphan = remains(k.pod) // nobody will look at its logs again
	case j.state == lifecycle.Terminated:
		return pause{}, w.finishLocked(k, now)
	}
	return pause{}, true
}

// remains names what the runtime may still have of a pod that has ended.
func remains(pod *v1.Pod) *lifecycle.Orphan {
	return &lifecycle.Orphan{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}
}

// finishLocked ends a worker, and lets the next of its name or UID run. It
// returns false: there is no next step.
func (w *Workers) finishLocked(k *worker, now time.Time) bool {
	k.state = lifecycle.Finished
	close(k.done)
	w.leaveTurnLocked(k)
	if k.removed {
		delete(w.mu.workers, k.uid)
		if k.restart != nil {
			// What the cache holds from before is of the old instance.
			w.addLocked(k.restart).last = now
		}
	}
	w.ended.Ring()
	return false
}

func (w *Workers) leaveTurnLocked(k *worker) {
	turn := slices.DeleteFunc(w.mu.turns[k.fullName], func(other *worker) bool { return other == k })
	if len(turn) == 0 {
		delete(w.mu.turns, k.fullName)
		return
	}
	w.mu.turns[k.fullName] = turn
	turn[0].wake.Ring()
}

// newerStatus waits for a status that shows what the last step did.
func (w *Workers) newerStatus(j *job) (*observed.Status, error) {
	ctx, cancel := context.WithTimeout(j.ctx, w.cfg.StatusTimeout)
	defer cancel()
	status, err := w.cfg.Cache.GetNewerThan(ctx, j.pod.UID, j.after)
	if err != nil {
		if j.ctx.Err() == nil {
			w.cfg.Recorder.Eventf(j.pod, v1.EventTypeWarning, reason.FailedSync, "error determining status: %v", err)
		}
		return nil, fmt.Errorf("determine status: %w", err)
	}
	return status, nil
}

// backoff returns the pause after that many failures in a row, less up to half
// of it, so that pods that failed together do not try together.
func (w *Workers) backoff(k *worker) time.Duration {
	d := retry.Pause(k.failures, w.cfg.RetryMin, w.cfg.RetryMax)
	return d - spread(d/2, k.uid, k.failures)
}

// resync returns when to look at a healthy pod again.
func (w *Workers) resync(k *worker, now time.Time) time.Duration {
	d := w.cfg.Resync + spread(w.cfg.Resync/2, k.uid, 0)
	if at, ok := w.cfg.RetryAt(k.pod); ok {
		d = min(d, max(at.Sub(now), w.cfg.RetryMin))
	}
	return d
}

// spread returns a part of d that depends on the UID and salt alone, so that it
// is the same after a restart and in a test.
func spread(d time.Duration, uid types.UID, salt int) time.Duration {
	h := fnv.New32a()
	fmt.Fprint(h, uid, salt)
	return d * time.Duration(h.Sum32()%100) / 100
}

// sleep waits until the next step is due or something was asked, and reports
// false when ctx is done.
func (k *worker) sleep(ctx context.Context, p pause) bool {
	due := time.NewTimer(p.time)
	defer due.Stop()
	pokes := k.pokes
	var calm <-chan time.Time
	if p.failed {
		floor := time.NewTimer(pokeFloor)
		defer floor.Stop()
		pokes, calm = nil, floor.C
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-k.wake:
			return true
		case <-pokes:
			return true
		case <-due.C:
			return true
		case <-calm:
			pokes, calm = k.pokes, nil
		}
	}
}

// logFailure tells of a failure once, and again when it changes.
func (w *Workers) logFailure(k *worker, j *job, err error) {
	if errors.Is(err, context.Canceled) || err.Error() == k.failure {
		return
	}
	if k.failing.IsZero() {
		k.failing = time.Now()
	}
	k.failure = err.Error()
	w.cfg.Log.Warn("pod step failed, trying again", "pod", k.fullName, "podUID", k.uid, "state", j.state.String(), "err", err)
}

func (w *Workers) logRecovery(k *worker) {
	if k.failure != "" {
		w.cfg.Log.Info("pod step works again", "pod", k.fullName, "podUID", k.uid, "failures", k.failures)
	}
	k.failures, k.failure, k.failing = 0, "", time.Time{}
}
