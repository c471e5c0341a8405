// Package mirror keeps a mirror in the API of each static pod, so that kubectl
// and everybody else sees it.
//
// It reads which static pods and mirrors there are (Set) and whether the node is
// registered, as the node owns its mirrors; it creates and deletes pods. It
// promises: a mirror that is deleted or is of another version comes back; a
// mirror is deleted by its UID, at once, and only when its static pod has ended;
// what fails is tried again with back-off, and told once. Nothing depends on a
// mirror: a static pod runs without one.
//
// All methods may be called from any goroutine.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/retry"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// errNoNode is returned while the node is not registered.
var errNoNode = errors.New("node is not known to the API")

// errOlder is returned when the API had the mirror of an older version, which
// the watch has not shown: it was removed, and the new one comes next.
var errOlder = errors.New("the mirror pod of an older version was in the way")

// errNoClass is returned when the API forbids a pod with a runtime class: most
// often the class is on its way there, from the same file.
var errNoClass = errors.New("the API does not take its runtime class")

// patience is how many times in a row these may come before that is told:
// for a moment, they are the way of things.
const patience = 6

// Config holds what a Keeper needs. Log, Pods, Node and NodeUID are required.
type Config struct {
	Log  *slog.Logger
	Pods typedv1.PodsGetter
	Node string // this node's name

	// NodeUID returns the UID of this node in the API, or an error while it is
	// not registered. Call Poke when that changes.
	NodeUID  func(ctx context.Context) (types.UID, error)
	Recorder record.EventRecorder // nil: no events

	RetryMin time.Duration // first pause after a failure; default 200 ms, doubled each time
	RetryMax time.Duration // longest pause after a failure; default 30 s
	Settle   time.Duration // how long what was done may stay unseen before it is done again; default 30 s
	Timeout  time.Duration // of one call of the API; default 10 s
}

func (c Config) withDefaults() Config {
	if c.Recorder == nil {
		c.Recorder = &record.FakeRecorder{} // without a channel it discards
	}
	c.RetryMin = cmp.Or(c.RetryMin, 200*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, 30*time.Second)
	c.Settle = cmp.Or(c.Settle, 30*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	return c
}

// A Keeper keeps the mirrors.
type Keeper struct {
	cfg  Config
	wake wake.Bell

	mu      sync.Mutex // guards the fields below
	picture picture
	poked   bool
	faults  map[string]fault.Fault // by namespace/name: why it has no proper mirror

	names map[string]*progress // by namespace/name; Run's alone
	told  map[string]string    // faults that were told, by namespace/name; Run's alone
}

// A progress is how far the Keeper is with one name.
type progress struct {
	key      string    // of the last action
	done     bool      // it succeeded
	after    time.Time // not again before
	failures int
}

// New returns a Keeper that does nothing until Run.
func New(cfg Config) *Keeper {
	return &Keeper{
		cfg: cfg.withDefaults(), wake: wake.NewBell(),
		faults: map[string]fault.Fault{}, names: map[string]*progress{}, told: map[string]string{},
	}
}

// Set replaces what is known. static are the static pods that sources have;
// ending those that no source has any more and that have not ended yet; mirrors
// what the API has. prune says that all sources have been seen, so that a mirror
// of neither is left over. The Keeper keeps the slices.
func (k *Keeper) Set(static, ending, mirrors []*v1.Pod, prune bool) {
	k.mu.Lock()
	k.picture = picture{static: static, ending: ending, mirrors: mirrors, prune: prune}
	k.mu.Unlock()
	k.wake.Ring()
}

// Poke makes the Keeper try at once what it could not do, such as after the
// node was registered.
func (k *Keeper) Poke() {
	k.mu.Lock()
	k.poked = true
	k.mu.Unlock()
	k.wake.Ring()
}

// Faults returns what keeps static pods from having a proper mirror.
func (k *Keeper) Faults() []fault.Fault {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.faults))
}

// Run keeps the mirrors until ctx is done.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		timer := time.NewTimer(k.turn(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-k.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// turn does what is due and returns how long until something else is.
func (k *Keeper) turn(ctx context.Context) time.Duration {
	k.mu.Lock()
	picture, poked := k.picture, k.poked
	k.poked = false
	k.mu.Unlock()

	actions := plan(&picture)
	k.drop(actions)
	next := k.cfg.Settle
	for i := range actions {
		if ctx.Err() != nil {
			break
		}
		a := &actions[i]
		p := k.names[a.name]
		if p == nil || p.key != a.key() {
			p = &progress{key: a.key()}
			k.names[a.name] = p
		}
		if poked && !p.done {
			p.after = time.Time{}
		}
		if wait := time.Until(p.after); wait > 0 {
			next = min(next, wait)
			continue
		}
		next = min(next, k.try(ctx, a, p))
	}
	return next
}

// drop forgets the names for which nothing is to be done.
func (k *Keeper) drop(actions []action) {
	due := map[string]bool{}
	for i := range actions {
		due[actions[i].name] = true
	}
	maps.DeleteFunc(k.names, func(name string, _ *progress) bool { return !due[name] })
	maps.DeleteFunc(k.told, func(name, _ string) bool { return !due[name] })
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.faults, func(name string, _ fault.Fault) bool { return !due[name] })
}

// try does an action and returns when to look at its name again.
func (k *Keeper) try(ctx context.Context, a *action, p *progress) time.Duration {
	call, cancel := context.WithTimeout(ctx, k.cfg.Timeout)
	defer cancel()
	var err error
	if a.create != nil {
		err = k.create(call, a.create)
	} else {
		err = k.remove(call, a.remove)
	}
	if err != nil && ctx.Err() != nil {
		return k.cfg.RetryMax // stopping
	}
	pause := k.cfg.Settle
	if err != nil {
		p.failures++
		pause = retry.Pause(p.failures, k.cfg.RetryMin, k.cfg.RetryMax)
	} else {
		p.failures = 0
	}
	p.done = err == nil
	p.after = time.Now().Add(pause)
	if passing := errors.Is(err, errNoNode) || errors.Is(err, errOlder) || errors.Is(err, errNoClass); !passing || p.failures > patience {
		k.setFault(a.name, err)
		k.tell(a, err)
	}
	return pause
}

func (k *Keeper) setFault(name string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		delete(k.faults, name)
		return
	}
	since := time.Now()
	if before, ok := k.faults[name]; ok {
		since = before.Since
	}
	k.faults[name] = fault.Fault{Object: "Pod " + name, Message: "not shown in the API: " + err.Error(), Since: since}
}

// tell tells of a failure once, and again when it changes.
func (k *Keeper) tell(a *action, err error) {
	if err == nil {
		delete(k.told, a.name)
		return
	}
	if err.Error() == k.told[a.name] {
		return
	}
	k.told[a.name] = err.Error()
	k.cfg.Log.Warn("static pod is not shown in the API, trying again", "pod", a.name, "err", err)
	if a.create != nil {
		k.cfg.Recorder.Eventf(a.create, v1.EventTypeWarning, reason.FailedMirrorPod, "Static pod is not shown in the API: %v", err)
	}
}

func (k *Keeper) create(ctx context.Context, pod *v1.Pod) error {
	uid, err := k.cfg.NodeUID(ctx)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errNoNode, k.cfg.Node, err)
	}
	pods := k.cfg.Pods.Pods(pod.Namespace)
	_, err = pods.Create(ctx, staticpod.MirrorOf(pod, k.cfg.Node, uid), metav1.CreateOptions{})
	if err == nil {
		k.cfg.Log.Info("made mirror pod", "pod", fullName(pod), "podUID", pod.UID)
		return nil
	}
	if apierrors.IsForbidden(err) && pod.Spec.RuntimeClassName != nil {
		return fmt.Errorf("%w: create mirror pod: %w", errNoClass, err)
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create mirror pod: %w", err)
	}
	// The watch has not shown it yet, or never will: look.
	there, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("read mirror pod: %w", err)
	case staticpod.Mirrors(there, pod):
		return nil
	case !staticpod.IsMirror(there):
		return errors.New("the API has a pod of this name that is no mirror; delete it there or rename the static pod")
	}
	if err := k.remove(ctx, there); err != nil {
		return err
	}
	return errOlder
}

func (k *Keeper) remove(ctx context.Context, mirror *v1.Pod) error {
	err := k.cfg.Pods.Pods(mirror.Namespace).Delete(ctx, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(mirror.UID)),
	})
	switch {
	case err == nil:
		k.cfg.Log.Info("removed mirror pod", "pod", fullName(mirror), "podUID", mirror.UID)
	case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err): // gone, or another by now
		return fmt.Errorf("delete mirror pod: %w", err)
	}
	return nil
}
