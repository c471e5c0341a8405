// Package nodeshutdown ends pods in order when the machine goes down.
//
// It reads from the login manager (systemd-logind) that the machine is about to
// go down, and holds that back, by an inhibitor of the kind "delay", until the
// pods have ended or their time is over. It writes an event about the node, when
// the last shutdown began and ended, and asks for the end of pods. As upstream's
// node shutdown manager it takes the pods in groups by priority, each group with
// a time of its own; in a group each pod ends before those that it comes after.
//
//	             ┌───────────────────────────────────────────────┐
//	             ▼                                               │ connection lost:
//	Open ─► Watch ─► up: Allow, Inhibit ──────── false ◄──────┐  │ again in a second
//	             │          │ true                            │  │
//	             └─► down: end the pods, then release ────────┴──┘
//
// It promises: while the machine goes down Err is not nil, from before the first
// pod ends; a shutdown that is called off stops the ending of pods at once; a
// connection that breaks meanwhile does not. A cancelled context undoes nothing,
// and lets the machine go.
//
// One goroutine watches and one ends pods. Err, Fault may be called from any.
package nodeshutdown

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// A Login is one connection to the login manager. Its calls come one after the
// other.
type Login interface {
	// Watch sends whether the machine goes down, now and at each change. The
	// channel is closed when the connection ends.
	Watch(ctx context.Context) (<-chan bool, error)
	// Allow has the manager wait for so long, or longer, for who inhibits.
	Allow(ctx context.Context, wait time.Duration) error
	// Inhibit has the manager wait until release is called; release may be called
	// after Close.
	Inhibit(ctx context.Context) (release func() error, err error)
	// Close ends the connection.
	Close() error
}

// pods are those that run here.
type pods interface {
	// Active returns the pods that have not ended.
	Active() []*v1.Pod
	// End asks for the end of a pod within so many seconds, and does not wait.
	End(pod *v1.Pod, grace int64)
	// WaitFinished waits until nothing of a pod runs and its volumes are unmounted.
	WaitFinished(ctx context.Context, uid types.UID) error
	// Resume has those start again that End ended and nobody else would start.
	Resume(ended []*v1.Pod)
}

// events records events; a record.EventRecorder is one.
type events interface {
	Event(object apiruntime.Object, kind, reason, message string)
}

// Config says how pods end with the machine. All is required but what has a
// default.
type Config struct {
	Periods   []Period // one for each priority at most; none: nothing is watched
	Open      func(ctx context.Context) (Login, error)
	Pods      pods
	Events    events
	Node      *v1.ObjectReference
	Known     <-chan struct{}       // closed once all pods that run are known; nil: they are
	Changed   func()                // called after each change of Err; must not block
	StateFile string                // keeps when the last shutdown began and ended
	Metrics   prometheus.Registerer // default: none
	Log       *slog.Logger

	Reconnect time.Duration // pause before another connection; default 1s, as upstream's
}

// A Manager ends the pods of one node.
type Manager struct {
	cfg     Config
	metrics *metrics

	release func() error // of the inhibitor; Run's own; nil: there is none
	ending  *ending      // Run's own; nil: the machine does not go down

	mu struct {
		sync.Mutex
		down  bool
		fault error
	}
}

// An ending is the end of all pods.
type ending struct {
	stop  context.CancelFunc
	done  chan struct{} // closed when it has ended; then ended may be read
	ended []*v1.Pod     // that were asked to end
}

// errDown is upstream's message of the node that is not ready.
var errDown = errors.New("node is shutting down")

// New returns a Manager that does nothing until Run.
func New(cfg Config) *Manager {
	cfg.Reconnect = cmp.Or(cfg.Reconnect, time.Second)
	cfg.Periods = slices.SortedFunc(slices.Values(cfg.Periods), func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) })
	return &Manager{cfg: cfg, metrics: newMetrics(cfg.Metrics)}
}

// Err returns upstream's words for a machine that goes down, or nil.
func (m *Manager) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.down {
		return errDown
	}
	return nil
}

// Fault returns why pods would not end in order, or not in time, or nil.
func (m *Manager) Fault() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.fault
}

// Run watches the login manager until ctx is done.
func (m *Manager) Run(ctx context.Context) error {
	if err := m.metrics.load(m.cfg.StateFile); err != nil {
		m.cfg.Log.Warn("read when the machine last went down", "err", err)
	}
	if len(m.cfg.Periods) == 0 {
		<-ctx.Done()
		return nil
	}
	defer m.letGo()
	defer m.stopEnding()
	for {
		err := m.watch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		m.setFault(fmt.Errorf("pods will not be ended in order when the machine goes down, as the login manager cannot be watched: %w", err))
		if !m.pause(ctx) {
			return nil
		}
	}
}

// pause waits until it is time for another connection, and reports false when
// ctx is done.
func (m *Manager) pause(ctx context.Context) bool {
	pause := time.NewTimer(m.cfg.Reconnect)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-m.held():
			m.letGo()
		case <-pause.C:
			return true
		}
	}
}

// held returns what is closed when nothing holds the machine back any more, or
// nil.
func (m *Manager) held() <-chan struct{} {
	if m.ending == nil || m.release == nil {
		return nil
	}
	return m.ending.done
}

// watch follows one connection to its end.
func (m *Manager) watch(ctx context.Context) (err error) {
	login, err := m.cfg.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, login.Close()) }()
	changes, err := login.Watch(ctx)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.held():
			m.letGo()
		case down, ok := <-changes:
			if !ok {
				return errors.New("the connection has ended")
			}
			if err := m.turn(ctx, login, down); err != nil {
				return err
			}
		}
	}
}

// turn takes in whether the machine goes down.
func (m *Manager) turn(ctx context.Context, login Login, down bool) error {
	if down {
		m.setFault(nil)
		m.begin(ctx)
		return nil
	}
	m.callOff()
	allowed := login.Allow(ctx, total(m.cfg.Periods))
	release, err := login.Inhibit(ctx)
	if err != nil {
		return err
	}
	m.letGo() // of the one before, which an earlier connection may have left
	m.release = release
	if allowed != nil {
		allowed = fmt.Errorf("pods may not get their time when the machine goes down: %w", allowed)
	}
	m.setFault(allowed)
	return nil
}

// begin ends the pods, beside what goes on.
func (m *Manager) begin(ctx context.Context) {
	if m.ending != nil {
		return // it was known before the connection broke
	}
	m.cfg.Log.Info("the machine goes down, ending pods")
	m.setDown(true)
	m.cfg.Events.Event(m.cfg.Node, v1.EventTypeNormal, reason.NodeShutdown, "Shutdown manager detected shutdown event")
	ctx, stop := context.WithCancel(ctx)
	e := &ending{stop: stop, done: make(chan struct{})}
	m.ending = e
	go func() {
		defer close(e.done)
		e.ended = m.endPods(ctx)
	}()
}

// callOff has pods go on after a shutdown that does not take place.
func (m *Manager) callOff() {
	if m.ending == nil {
		return
	}
	m.cfg.Log.Info("the machine does not go down after all")
	m.cfg.Events.Event(m.cfg.Node, v1.EventTypeNormal, reason.NodeShutdown, "Shutdown manager detected shutdown cancellation")
	ended := m.stopEnding()
	m.setDown(false)
	m.cfg.Pods.Resume(ended)
}

// stopEnding ends what begin began, and returns the pods that were asked to end.
func (m *Manager) stopEnding() []*v1.Pod {
	if m.ending == nil {
		return nil
	}
	m.ending.stop()
	<-m.ending.done
	ended := m.ending.ended
	m.ending = nil
	return ended
}

// letGo releases the inhibitor.
func (m *Manager) letGo() {
	if m.release == nil {
		return
	}
	if err := m.release(); err != nil {
		m.cfg.Log.Warn("release the inhibitor of the machine's shutdown", "err", err)
	}
	m.release = nil
}

func (m *Manager) setDown(down bool) {
	m.mu.Lock()
	m.mu.down = down
	m.mu.Unlock()
	m.cfg.Changed()
}

func (m *Manager) setFault(fault error) {
	m.mu.Lock()
	before := m.mu.fault
	m.mu.fault = fault
	m.mu.Unlock()
	switch {
	case fault == nil && before != nil:
		m.cfg.Log.Info("the machine's shutdown is watched")
	case fault != nil && (before == nil || before.Error() != fault.Error()):
		m.cfg.Log.Warn("the machine's shutdown", "err", fault)
	}
}
