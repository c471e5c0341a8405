// Package syncloop is the one place where everything that may change a pod
// meets: what the sources want, what the runtime reports, and time.
//
// It reads what sources say (Deliver), lifecycle events and the list of what
// the runtime has. It owns the desired pods, and tells the pod workers, the
// statuses and the mirrors what follows. It promises:
//
//   - One goroutine decides, so a set is taken in whole, and in the order in
//     which its source delivered it.
//   - Nothing is taken away because a source is silent: pods, mirrors and
//     folders that nobody wants go only when every source has been seen. What a
//     source took away itself goes whatever the others say.
//   - A pod that runs already is adopted, and one that is restored starts: nobody
//     asks for its admission again.
//   - A pod has the resources that it was admitted with until a resize is
//     admitted too.
//   - A static pod starts only after what the runtime has of an older one of its
//     name has ended, even if that was made by an earlier agent.
//   - A critical pod for which others have to end starts when they have.
//   - A static pod that comes after others starts once they are ready, and stops
//     before them.
//   - No call of it waits for the API, a disk or the runtime.
//
// All methods may be called from any goroutine.
package syncloop

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// workers run the pods. None of the calls blocks.
type workers interface {
	Update(req lifecycle.Request)
	Poke(uid types.UID)
	SyncKnown(wanted func(uid types.UID) bool)
	Snapshot() []lifecycle.Info
}

// statuses keep what the API shows of pods. None of the calls blocks.
type statuses interface {
	Observe(pod *v1.Pod)
	ObserveMirror(static, mirror *v1.Pod)
	Reject(pod *v1.Pod, reason, message string)
	Admit(uid types.UID)
}

// statusStore is the other side of statuses: what is kept.
type statusStore interface {
	Get(uid types.UID) (v1.PodStatus, bool)
	Forget(keep func(uid types.UID) bool)
	// End says why a pod is ended that its source still has.
	End(uid types.UID, reason, message string, disrupted bool)
}

// runtime is what was last listed. None of the calls blocks.
type runtime interface {
	Pods() []observed.Pod
	Healthy() error // nil once it was listed, and as long as that works
}

// resizes are told which resizes wait, and why. The call does not block.
type resizes interface {
	// SetPending says that a pod is wanted with other resources, and waits for them.
	// nil: it has them, or will with the next step of its worker.
	SetPending(wanted *v1.Pod, pending *allocation.Pending)
}

// mirrors keep the static pods visible in the API. The call does not block.
type mirrors interface {
	Set(static, ending, mirrors []*v1.Pod, prune bool)
}

// Config holds what the loop needs. Log, Desired, Workers, Statuses, Store,
// Runtime, Events and Ended are required.
type Config struct {
	Log      *slog.Logger
	Desired  *desired.Pods // the loop becomes its owner
	Workers  workers
	Statuses statuses
	Store    statusStore
	Runtime  runtime
	Mirrors  mirrors               // nil: there is no API
	Resizes  resizes               // nil: nobody is told
	Recorder record.EventRecorder  // nil: no events
	Node     *v1.ObjectReference   // which events about left-overs are about; nil: none are made
	Events   <-chan observed.Event // changes that the runtime reports
	Ended    <-chan struct{}       // a worker has finished
	Decided  <-chan struct{}       // Admit may know more of what it had to wait for; nil: it never waits

	// Admit decides whether the node takes a pod beside others, which are the
	// pods that hold resources. Nil: it takes all.
	Admit func(pod *v1.Pod, others []*v1.Pod) Verdict
	// Sweep removes what is left on the disk of pods that are not known. It may
	// block, and is called from one goroutine at a time. Nil: nothing to sweep.
	Sweep func(ctx context.Context, known func(uid types.UID) bool) error
	// Known reports whether a pod has a worker, or may get one. What the runtime
	// has is known to Sweep, too. Required with Sweep.
	Known func(uid types.UID) bool

	// Published is called after each change of what Pods and Admitted return, and
	// must not block. Nil: nobody is told.
	Published func()
	// Preempted is called for each pod that ends so that another fits, with the
	// resource that was lacking. Nil: nobody is told.
	Preempted func(lack string)

	Housekeeping time.Duration // between two looks for what is left over; default 2 s, as upstream's
	ListPoll     time.Duration // between two looks whether the runtime was listed, at the start; default 20 ms
	StallAfter   time.Duration // Healthy fails when the loop has not turned for so long; default 5 min, as upstream's
}

func (c Config) withDefaults() Config {
	if c.Recorder == nil {
		c.Recorder = &record.FakeRecorder{} // without a channel it discards
	}
	if c.Admit == nil {
		c.Admit = func(*v1.Pod, []*v1.Pod) Verdict { return Verdict{} }
	}
	if c.Preempted == nil {
		c.Preempted = func(string) {}
	}
	if c.Published == nil {
		c.Published = func() {}
	}
	if c.Mirrors == nil {
		c.Mirrors = noMirrors{}
	}
	if c.Resizes == nil {
		c.Resizes = noResizes{}
	}
	c.Housekeeping = cmp.Or(c.Housekeeping, 2*time.Second)
	c.ListPoll = cmp.Or(c.ListPoll, 20*time.Millisecond)
	c.StallAfter = cmp.Or(c.StallAfter, 5*time.Minute)
	return c
}

type noMirrors struct{}

func (noMirrors) Set(_, _, _ []*v1.Pod, _ bool) {}

type noResizes struct{}

func (noResizes) SetPending(*v1.Pod, *allocation.Pending) {}

// A Loop is the sync loop.
type Loop struct {
	cfg        Config
	deliveries chan desired.Delivery // to the loop; no buffer: Deliver returns when it was taken
	sweep      wake.Bell             // to the sweeper

	synced   chan struct{} // closed by allTaken
	allTaken func()        // every source was taken

	// The loop's own, without a lock.
	pods     map[types.UID]*v1.Pod // wanted, without mirrors, with the resources that they have here
	static   map[string]*v1.Pod    // those of pods that are static, by namespace/name
	touched  []*v1.Pod             // of pods, or gone from them, since they were published
	mirrors  map[string]*v1.Pod    // by namespace/name
	statics  int                   // counts the changes of static and mirrors
	pictured picture               // as of the last setMirrors
	rejected map[types.UID]rejection
	asked    sets.Set[types.UID]    // not admitted yet, and not refused: it is not known
	resizes  map[types.UID]*resize  // those that are not allocated
	turns    map[types.UID]*turn    // admitted, not started: others come first
	rooms    map[types.UID]*room    // admitted, not started: others end first
	held     map[types.UID]*v1.Pod  // gone from their source, not stopped: others end first
	seen     sets.Set[string]       // sources whose updates were taken
	told     map[faultKey]time.Time // faults of which an event was made, and when

	mu struct {
		sync.Mutex
		pods []*v1.Pod // ordered by namespace and name
		seen bool      // the API has said which pods there are

		rejected map[types.UID]rejection
		faults   []fault.Fault // as of the last set
		turned   time.Time     // when the loop last turned; zero: not yet
	}
}

// A picture is what the mirrors depend on, beside how static pods end.
type picture struct {
	statics int
	allSeen bool
}

type rejection struct{ reason, message string }

type faultKey struct {
	source, message string
	uid             types.UID
}

// New returns a loop that does nothing until Run.
func New(cfg Config) *Loop {
	synced := make(chan struct{})
	return &Loop{
		synced:     synced,
		allTaken:   sync.OnceFunc(func() { close(synced) }),
		cfg:        cfg.withDefaults(),
		deliveries: make(chan desired.Delivery),
		sweep:      wake.NewBell(),
		pods:       map[types.UID]*v1.Pod{},
		static:     map[string]*v1.Pod{},
		mirrors:    map[string]*v1.Pod{},
		rejected:   map[types.UID]rejection{},
		asked:      sets.New[types.UID](),
		resizes:    map[types.UID]*resize{},
		turns:      map[types.UID]*turn{},
		rooms:      map[types.UID]*room{},
		held:       map[types.UID]*v1.Pod{},
		seen:       sets.New[string](),
		told:       map[faultKey]time.Time{},
	}
}

// Deliver gives the loop what a source says, and returns when that is taken or
// ctx is done. The pods must not be changed afterwards.
func (l *Loop) Deliver(ctx context.Context, d desired.Delivery) {
	select {
	case <-ctx.Done():
	case l.deliveries <- d:
	}
}

// Run turns the loop until ctx is done. It takes nothing in before the runtime
// has been listed once: only then it is known what runs already.
func (l *Loop) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if !l.waitForList(ctx) {
		return nil
	}
	l.keepNames()
	if l.cfg.Sweep != nil {
		wg.Go(func() { l.runSweeper(ctx) })
	}
	housekeeping := time.NewTicker(l.cfg.Housekeeping)
	defer housekeeping.Stop()
	for {
		l.markTurn()
		var order <-chan time.Time
		if len(l.turns)+len(l.rooms)+len(l.held) > 0 {
			order = time.After(orderPeriod)
		}
		select {
		case <-ctx.Done():
			return nil
		case d := <-l.deliveries:
			l.take(d)
		case e := <-l.cfg.Events:
			l.cfg.Workers.Poke(e.UID)
		case <-l.cfg.Decided:
			l.askAgain()
		case <-l.cfg.Ended:
			l.keepHouse(false)
		case <-housekeeping.C:
			l.keepHouse(true)
		case <-order:
			if l.keepOrder() {
				l.publish()
			}
		}
	}
}

func (l *Loop) waitForList(ctx context.Context) bool {
	poll := time.NewTicker(l.cfg.ListPoll)
	defer poll.Stop()
	for l.cfg.Runtime.Healthy() != nil {
		select {
		case <-ctx.Done():
			return false
		case <-poll.C:
		}
	}
	return ctx.Err() == nil
}

// keepNames has what runs already keep its name until its source has answered.
func (l *Loop) keepNames() {
	for _, o := range l.cfg.Runtime.Pods() {
		if slices.ContainsFunc(o.Sandboxes, func(s observed.Sandbox) bool { return s.State == observed.Running }) {
			l.cfg.Desired.Keep(types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, o.Source)
		}
	}
}

func (l *Loop) markTurn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.turned = time.Now()
}

// Synced is closed once the pods of every source were handed to their workers.
func (l *Loop) Synced() <-chan struct{} { return l.synced }

// Healthy returns an error if the loop has not turned for a long time, or not
// yet.
func (l *Loop) Healthy() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch since := time.Since(l.mu.turned); {
	case l.mu.turned.IsZero():
		return fmt.Errorf("sync loop waits for the container runtime")
	case since > l.cfg.StallAfter:
		return fmt.Errorf("sync loop has not turned for %v", since.Round(time.Second))
	}
	return nil
}

// Faults returns the pods that are left out, clash, or wait for a resize, as
// of the last set.
func (l *Loop) Faults() []fault.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.mu.faults)
}

// Pods returns the pods that are wanted, with their newest status, ordered by
// namespace and name. Mirrors are not among them.
func (l *Loop) Pods() []*v1.Pod {
	l.mu.Lock()
	pods := l.mu.pods
	l.mu.Unlock()
	all := make([]*v1.Pod, 0, len(pods))
	for _, p := range pods {
		all = append(all, l.withStatus(p))
	}
	return all
}

// PodByName returns the wanted pod of that name with its newest status.
func (l *Loop) PodByName(namespace, name string) (*v1.Pod, bool) {
	l.mu.Lock()
	pods := l.mu.pods
	l.mu.Unlock()
	for _, p := range pods {
		if p.Namespace == namespace && p.Name == name {
			return l.withStatus(p), true
		}
	}
	return nil, false
}

// PodByUID returns the wanted pod of that UID with its newest status.
func (l *Loop) PodByUID(uid types.UID) (*v1.Pod, bool) {
	l.mu.Lock()
	pods := l.mu.pods
	l.mu.Unlock()
	for _, p := range pods {
		if p.UID == uid {
			return l.withStatus(p), true
		}
	}
	return nil, false
}

func (l *Loop) withStatus(pod *v1.Pod) *v1.Pod {
	p := *pod
	if status, ok := l.cfg.Store.Get(pod.UID); ok {
		p.Status = status
	}
	return &p
}
