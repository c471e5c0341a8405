// Package podworker drives every pod through its life, one goroutine a pod UID.
//
// It reads requests (Update, Poke, SyncKnown) and the status cache, and calls a
// [Syncer] for one pod at a time: never two calls for one UID at once. What it
// promises:
//
//   - A UID that has ended never runs again, unless its source removed it and
//     put it back; then a new instance starts after the old one has ended.
//   - Static pods of one namespace and name run one after the other, whatever
//     their UIDs, and after a leftover of that name that only the runtime knows.
//   - A grace period only shrinks.
//   - A failed call is made again with back-off, without anyone asking.
//   - A cancelled context stops the work and undoes nothing.
//
// All methods may be called from any goroutine.
package podworker

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// A Syncer makes one step of one pod's life. Calls for different pods are
// concurrent, calls for one pod never are. Every call returns soon after its
// context is cancelled, and leaves alone what then runs. The status is of the
// pod's UID, newer than the end of the last call for it, and must not be changed.
type Syncer interface {
	// SyncPod makes the pod's containers match its specification. It reports
	// terminal once no container runs or will run again.
	SyncPod(ctx context.Context, pod, mirror *v1.Pod, status *observed.Status) (terminal bool, err error)
	// SyncTerminating stops everything that runs, giving it grace seconds
	// (never nil, at least 1). It returns nil only when nothing runs.
	SyncTerminating(ctx context.Context, pod *v1.Pod, status *observed.Status, grace *int64) error
	// SyncTerminated releases what the pod held beside its containers.
	SyncTerminated(ctx context.Context, pod *v1.Pod, status *observed.Status) error
	// SyncRemains removes what the runtime still has of a pod once everybody knows that
	// it has ended. Where that fails nothing is lost: the next SyncOrphan of the pod
	// removes it.
	SyncRemains(ctx context.Context, pod *v1.Pod, status *observed.Status) error
	// SyncOrphan stops and removes all that the runtime and the disk have of a
	// pod that nobody wants, if anything. Only the pod's names are set.
	SyncOrphan(ctx context.Context, orphan observed.Pod) error
}

// statusCache answers with a status that is newer than a moment, and blocks
// until it has one or ctx is done.
type statusCache interface {
	GetNewerThan(ctx context.Context, uid types.UID, moment time.Time) (*observed.Status, error)
}

// Config holds what the workers need. Log, Syncer and Cache are required.
type Config struct {
	Log      *slog.Logger
	Syncer   Syncer
	Cache    statusCache
	Recorder record.EventRecorder // nil: no events

	// Refresh asks for a new status of one pod, without waiting for it. It is
	// called after each step, so that the next one does not wait for the next
	// periodic listing. Nil: the workers wait.
	Refresh func(uid types.UID)
	// Begins is told that a step begins to change a pod; Refresh is called when that
	// is done. Nil: nobody is told.
	Begins func(uid types.UID)
	// RetryAt says when a pod has to be looked at again though nothing happens:
	// at the end of a container's back-off or of activeDeadlineSeconds. Nil: never.
	RetryAt func(pod *v1.Pod) (at time.Time, ok bool)
	// Finished is called when SyncTerminated has succeeded for a pod, before the
	// next instance of it starts. Nil: nobody is told.
	Finished func(pod *v1.Pod)

	Resync        time.Duration // between two looks at a pod to which nothing happens; default 1 min, up to half more by UID
	RetryMin      time.Duration // first pause after a failed step; default 100 ms, doubled each time, with jitter
	RetryMax      time.Duration // longest pause after a failed step; default 10 s
	StatusTimeout time.Duration // longest wait for a newer status, then the step has failed; default 2 min

	Metrics prometheus.Registerer // nil: nobody sees them
}

func (c Config) withDefaults() Config {
	if c.Recorder == nil {
		c.Recorder = &record.FakeRecorder{} // without a channel it discards
	}
	if c.Refresh == nil {
		c.Refresh = func(types.UID) {}
	}
	if c.Begins == nil {
		c.Begins = func(types.UID) {}
	}
	if c.RetryAt == nil {
		c.RetryAt = func(*v1.Pod) (time.Time, bool) { return time.Time{}, false }
	}
	if c.Finished == nil {
		c.Finished = func(*v1.Pod) {}
	}
	c.Resync = cmp.Or(c.Resync, time.Minute)
	c.RetryMin = cmp.Or(c.RetryMin, 100*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, 10*time.Second)
	c.StatusTimeout = cmp.Or(c.StatusTimeout, 2*time.Minute)
	return c
}

// Workers are the workers of all pods.
type Workers struct {
	cfg     Config
	metrics *metrics
	spawn   wake.Bell // a worker waits for its goroutine
	ended   wake.Bell // a worker has finished

	mu struct {
		sync.Mutex
		workers map[types.UID]*worker
		turns   map[string][]*worker // by namespace/name, in the order of arrival; the first may run
		idle    []*worker            // workers that have no goroutine yet
		synced  bool                 // SyncKnown was called: who is not here does not run
	}
}

// New returns workers that do nothing until Run.
func New(cfg Config) *Workers {
	w := &Workers{
		cfg:     cfg.withDefaults(),
		metrics: newMetrics(cfg.Metrics),
		spawn:   wake.NewBell(),
		ended:   wake.NewBell(),
	}
	w.mu.workers = map[types.UID]*worker{}
	w.mu.turns = map[string][]*worker{}
	return w
}

// Run runs the workers until ctx is done and every step in hand has returned.
func (w *Workers) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		for _, k := range w.takeIdle() {
			wg.Go(func() { w.work(ctx, k) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.spawn:
		}
	}
}

// Ended tells that a pod has finished since the last receive. It is never
// closed.
func (w *Workers) Ended() <-chan struct{} { return w.ended }

func (w *Workers) takeIdle() []*worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	idle := w.mu.idle
	w.mu.idle = nil
	return idle
}

// work makes one worker's steps until it has finished or ctx is done.
func (w *Workers) work(ctx context.Context, k *worker) {
	for {
		next, more := w.step(ctx, k)
		if !more || !k.sleep(ctx, next) {
			return
		}
	}
}

// step makes at most one step, and says how long to wait until the next one, or
// that there is none.
func (w *Workers) step(ctx context.Context, k *worker) (next pause, more bool) {
	if ctx.Err() != nil {
		return pause{}, false
	}
	j := w.begin(ctx, k)
	if j == nil {
		return pause{time: w.cfg.Resync}, true // waits for its turn
	}
	terminal, err := w.sync(j)
	next, more = w.settle(k, j, terminal, err)
	w.cfg.Refresh(k.uid)
	return next, more
}

// sync makes the step.
func (w *Workers) sync(j *job) (terminal bool, err error) {
	if j.orphan != nil {
		w.cfg.Begins(j.orphan.UID)
		o := observed.Pod{UID: j.orphan.UID, Namespace: j.orphan.Namespace, Name: j.orphan.Name}
		return false, w.cfg.Syncer.SyncOrphan(j.ctx, o)
	}
	status, err := w.newerStatus(j)
	if err != nil {
		return false, err
	}
	w.cfg.Begins(j.pod.UID)
	began := time.Now()
	defer func() { w.metrics.stepped(j, began) }()
	switch j.state {
	case lifecycle.Terminating:
		return false, w.cfg.Syncer.SyncTerminating(j.ctx, j.pod, status, &j.grace)
	case lifecycle.Terminated:
		return false, w.terminated(j, status)
	default:
		return w.cfg.Syncer.SyncPod(j.ctx, j.pod, j.mirror, status)
	}
}

// terminated gives back what a pod held, and then, while the API learns of its end,
// removes what is left of it.
func (w *Workers) terminated(j *job, status *observed.Status) error {
	if err := w.cfg.Syncer.SyncTerminated(j.ctx, j.pod, status); err != nil {
		return err
	}
	w.cfg.Finished(j.pod)
	if err := w.cfg.Syncer.SyncRemains(j.ctx, j.pod, status); err != nil && j.ctx.Err() == nil {
		w.cfg.Log.Warn("what is left of a pod stays for now", "pod", j.pod.Namespace+"/"+j.pod.Name, "podUID", j.pod.UID, "err", err)
	}
	return nil
}
