package podsource

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// APIConfig configures the source `api`.
type APIConfig struct {
	// Node is this node's name.
	Node string
	// Client lists and watches pods.
	Client kubernetes.Interface
	// Ready, if given, is closed when pods may be asked for: upstream waits until
	// the node object is known, without which pods cannot be admitted.
	Ready <-chan struct{}
	// Restore, if given, returns what an earlier run remembers. It is asked once
	// if the server does not answer at the start: as soon as a question has failed,
	// or after RestoreAfter. What it returns is delivered as restored; nothing is
	// if that is empty. A call that waits delays what the server says meanwhile.
	Restore func(ctx context.Context) []*corev1.Pod
	// RestoreAfter is how long the server may be silent before Restore is asked.
	// Default 5 s.
	RestoreAfter time.Duration
	Deliver      Deliver
	Log          *slog.Logger
}

// API follows the pods that are bound to this node.
type API struct {
	cfg    APIConfig
	client *follower
	pods   *pending
	state  outage
	failed wake.Bell // the server did not answer a question

	restored struct {
		sync.Mutex
		pods int // 0 once the server has answered
	}
}

// NewAPI returns the source. It starts nothing.
func NewAPI(cfg APIConfig) *API {
	cfg.RestoreAfter = cmp.Or(cfg.RestoreAfter, 5*time.Second)
	a := &API{cfg: cfg, pods: newPending(), failed: wake.NewBell()}
	a.state.log = cfg.Log.With("source", staticpod.SourceAPI)
	a.client = newFollower(cfg.Client, cfg.Node, a.pods, a)
	return a
}

// Faults tells while pods cannot be read from the API.
func (a *API) Faults() []fault.Fault { return a.state.faults() }

// A State is how a source is, for people.
type State struct {
	// LastGood is when the server last said anything: a set of pods, a change, or
	// that there is none. Zero: never in this run.
	LastGood time.Time
	// Failed says what is wrong, and Since since when; empty while the server
	// answers.
	Failed string
	Since  time.Time
	// Pods is how many pods are bound to the node, its static pods' mirrors among
	// them, or how many an earlier run remembers.
	Pods int
	// Restored is true while an earlier run's pods stand in for the server's.
	Restored bool
	// RestoredFrom is as of when an earlier run remembers them; zero: not known
	// here.
	RestoredFrom time.Time
}

// State returns how the source is.
func (a *API) State() State {
	a.restored.Lock()
	s := State{Pods: a.restored.pods, Restored: a.restored.pods > 0}
	a.restored.Unlock()
	if !s.Restored {
		s.Pods = a.pods.count()
	}
	a.state.state(&s)
	return s
}

// Run delivers the full set at first, and then what changes, until ctx is done.
// It returns nil then. While the server does not answer nothing is delivered: what
// ran stays. A server that has forgotten what happened meanwhile is asked for the
// full set again.
func (a *API) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if a.waitReady(ctx) {
			a.client.follow(ctx)
		}
	})
	if a.cfg.Restore != nil && !a.waitAnswer(ctx) {
		a.restore(ctx)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.pods.wake:
			a.deliver(ctx)
		}
	}
}

func (a *API) waitReady(ctx context.Context) bool {
	if a.cfg.Ready == nil {
		return true
	}
	select {
	case <-a.cfg.Ready:
		return true
	case <-ctx.Done():
		return false
	}
}

// waitAnswer waits for the first full set. It reports whether that came.
func (a *API) waitAnswer(ctx context.Context) bool {
	patience := time.NewTimer(a.cfg.RestoreAfter)
	defer patience.Stop()
	select {
	case <-a.pods.wake:
		a.pods.wake.Ring() // it still waits
		return true
	case <-a.failed:
	case <-patience.C:
	case <-ctx.Done():
	}
	return false
}

// restore delivers what an earlier run remembers.
func (a *API) restore(ctx context.Context) {
	pods := a.cfg.Restore(ctx)
	if len(pods) == 0 || ctx.Err() != nil {
		return
	}
	a.restored.Lock()
	a.restored.pods = len(pods)
	a.restored.Unlock()
	a.cfg.Deliver(ctx, desired.Delivery{Source: staticpod.SourceAPI, Kind: desired.Restored, Pods: pods})
}

func (a *API) deliver(ctx context.Context) {
	d, ok := a.pods.take(staticpod.SourceAPI)
	if !ok {
		return
	}
	a.restored.Lock()
	a.restored.pods = 0
	a.restored.Unlock()
	a.cfg.Deliver(ctx, d)
}

// answered notes that the server answers.
func (a *API) answered() { a.state.good() }

// silent notes that it does not.
func (a *API) silent(err error) {
	a.state.begin(err)
	a.failed.Ring()
}
