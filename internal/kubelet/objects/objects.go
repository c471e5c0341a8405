// Package objects keeps the API objects that the node's pods refer to.
//
// Every ConfigMap, Secret, claim, PersistentVolume and RuntimeClass that a pod, and every CSIDriver that a driver
// refers to is watched by name, once however many pods use it, from Hold to Release. A read
// of a held object costs no request and works while the API server is away: it
// gives what was last seen. Objects that say that they never change are not
// watched any more once they are known. Service account tokens are asked for,
// kept and renewed. The services, which pods find in their environment, are
// watched all together from the first read on.
//
// ConfigMaps and Secrets may be read from time to time instead of watched, as a
// Config's Strategy says.
//
// While the API server has not answered since the start, and does not, a Config's
// Memory serves: what an earlier run kept.
//
// A Store may be used by any goroutine. What it returns is shared: nobody
// changes it. Errors are those of the API, for apierrors to tell apart.
package objects

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// Config says where a Store gets its objects.
type Config struct {
	Client kubernetes.Interface
	Log    *slog.Logger

	// Strategy is how changes of ConfigMaps and Secrets are found: by a watch, or by
	// reading them again, once they are older than Age and whenever one more pod
	// holds them ("Cache"); "Get" has every read ask the API server, too. Default:
	// Watch.
	Strategy kubeletconfig.ResourceChangeDetectionStrategy
	// Age is how old what is not watched may become. Called from any goroutine. Default:
	// a minute.
	Age func() time.Duration
	// Poll is how often an object is read that may be read but not watched, as
	// claims may be by a node of a cluster. Default 5 s.
	Poll time.Duration
	// PollClaims is whether claims and PersistentVolumes are of that kind, as the node
	// authorizer has it. Otherwise that is found out at each try to list one.
	PollClaims bool
	// Memory is asked for what the API server has not told since the start, when it
	// does not answer or takes longer than Patience. An answer, good or bad, ends
	// that. Nil: there is none.
	Memory memory
	// Patience is how long a read waits for the API server where Memory could
	// serve. Default 2 s.
	Patience time.Duration

	// Certificates has certificates issued for pods. Nil: nobody does.
	Certificates certificates

	// MaxRetry is the longest pause between two tries to reach the API server.
	// Default 10 s.
	MaxRetry time.Duration
}

func (c Config) withDefaults() Config {
	c.Strategy = cmp.Or(c.Strategy, kubeletconfig.WatchChangeDetectionStrategy)
	if c.Age == nil {
		c.Age = func() time.Duration { return time.Minute }
	}
	c.Poll = cmp.Or(c.Poll, 5*time.Second)
	c.MaxRetry = cmp.Or(c.MaxRetry, 10*time.Second)
	c.Patience = cmp.Or(c.Patience, 2*time.Second)
	return c
}

// A Store holds objects and tokens.
type Store struct {
	cfg      Config
	tokens   tokens
	services *services
	wake     wake.Bell // some watch waits to be started

	mu struct {
		sync.Mutex
		entries     map[podvolumes.Ref]*entry
		held        map[types.UID]map[podvolumes.Ref]bool
		pending     []*entry // made, their watch not started yet
		subscribers []func(types.UID)
	}
}

// An entry is one object that somebody holds. The fields below again are guarded
// by the store's lock.
type entry struct {
	ref   podvolumes.Ref
	stop  chan struct{} // closed when nobody holds the object any more
	again wake.Bell     // it is to be read again now; not heard by a watch

	known chan struct{} // closed at the first answer, good or bad, that was asked for after born
	born  time.Time     // when it was made, or wanted again
	asked bool          // what is being asked was begun after born

	cancel  context.CancelFunc // ends the watch; nil: none runs yet
	holders map[types.UID]bool
	object  runtime.Object // nil: there is none
	synced  bool           // object is what the API server said, if ever so long ago
	err     error          // why there was no answer yet; nil once synced
	outage  error          // why the last try to watch it failed; nil: it did not
	failing time.Time      // since when, with outage
}

// New makes a Store. It asks for nothing before Run.
func New(cfg Config) *Store {
	s := &Store{cfg: cfg.withDefaults(), wake: wake.NewBell()}
	s.tokens = newTokens(s.cfg)
	s.services = newServices(cfg.Log)
	if cfg.Memory != nil {
		s.services.patience = s.cfg.Patience
	}
	s.mu.entries = map[podvolumes.Ref]*entry{}
	s.mu.held = map[types.UID]map[podvolumes.Ref]bool{}
	return s
}

// Subscribe has changed called whenever an object that a pod holds is first
// known, changes or vanishes. It is called from the watches' goroutines and
// must not block. Subscribe before Run.
func (s *Store) Subscribe(changed func(uid types.UID)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.subscribers = append(s.mu.subscribers, changed)
}

// Run watches what is held until ctx is done and all its goroutines have ended.
func (s *Store) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	if s.cfg.Memory != nil {
		s.services.want() // they are kept for a start without the API server
	}
	for {
		s.mu.Lock()
		start := s.mu.pending
		s.mu.pending = nil
		s.mu.Unlock()
		for _, e := range start {
			watches.Go(func() { s.watch(ctx, e) })
		}
		if s.services.begin() {
			watches.Go(func() { s.services.watch(ctx, s.cfg.Client, s.cfg.MaxRetry) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
	}
}

// Hold keeps everything that a pod refers to until Release. It may be called
// again, with a pod that refers to something else.
func (s *Store) Hold(pod *v1.Pod) {
	s.hold(pod.UID, podvolumes.Refs(pod))
}

// HoldRuntimeClasses keeps these RuntimeClasses, and no others, for a holder
// that is no pod.
func (s *Store) HoldRuntimeClasses(holder types.UID, names []string) {
	s.hold(holder, refsTo(podvolumes.RefRuntimeClass, names))
}

// HoldCSIDrivers keeps these CSIDrivers, and no others, for a holder that is no
// pod and holds nothing else.
func (s *Store) HoldCSIDrivers(holder types.UID, names []string) {
	s.hold(holder, refsTo(podvolumes.RefCSIDriver, names))
}

func refsTo(kind podvolumes.RefKind, names []string) []podvolumes.Ref {
	refs := make([]podvolumes.Ref, 0, len(names))
	for _, name := range names {
		refs = append(refs, podvolumes.Ref{Kind: kind, Name: name})
	}
	return refs
}

// hold keeps refs, and of others only the volumes of claims, for a holder.
func (s *Store) hold(holder types.UID, refs []podvolumes.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref := range s.mu.held[holder] {
		if !slices.Contains(refs, ref) && ref.Kind != podvolumes.RefPersistentVolume {
			s.dropLocked(holder, ref)
		}
	}
	for _, ref := range refs {
		s.holdLocked(holder, ref)
	}
}

// Release lets go of everything that Hold and the reads for it kept for a pod,
// its tokens and certificates included.
func (s *Store) Release(uid types.UID) {
	s.mu.Lock()
	for ref := range s.mu.held[uid] {
		s.dropLocked(uid, ref)
	}
	s.mu.Unlock()
	s.tokens.forget(uid)
	if s.cfg.Certificates != nil {
		s.cfg.Certificates.Release(uid)
	}
}

func (s *Store) holdLocked(uid types.UID, ref podvolumes.Ref) {
	if s.mu.held[uid][ref] {
		return
	}
	if s.mu.held[uid] == nil {
		s.mu.held[uid] = map[podvolumes.Ref]bool{}
	}
	s.mu.held[uid][ref] = true
	e := s.mu.entries[ref]
	if e == nil {
		e = &entry{
			ref: ref, stop: make(chan struct{}), again: wake.NewBell(), known: make(chan struct{}), born: time.Now(),
			asked: true, holders: map[types.UID]bool{},
		}
		s.mu.entries[ref] = e
		s.mu.pending = append(s.mu.pending, e)
		s.wake.Ring()
	} else if s.rereads(ref) && !immutable(e.object) {
		e.wantAgainLocked()
	}
	e.holders[uid] = true
}

func (s *Store) dropLocked(uid types.UID, ref podvolumes.Ref) {
	delete(s.mu.held[uid], ref)
	if len(s.mu.held[uid]) == 0 {
		delete(s.mu.held, uid)
	}
	e := s.mu.entries[ref]
	delete(e.holders, uid)
	if len(e.holders) > 0 {
		return
	}
	delete(s.mu.entries, ref)
	s.mu.pending = slices.DeleteFunc(s.mu.pending, func(p *entry) bool { return p == e })
	close(e.stop)
	if e.cancel != nil {
		e.cancel()
	}
}

// seen records what the API server said of an object and tells the pods that
// hold it, if that is news.
func (s *Store) seen(e *entry, object runtime.Object) {
	if object != nil {
		if accessor, err := meta.Accessor(object); err == nil {
			accessor.SetManagedFields(nil) // half the memory, and nobody reads them
		}
	}
	s.mu.Lock()
	news := !e.synced || !sameVersion(e.object, object)
	e.object, e.synced, e.err, e.outage = object, true, nil, nil
	s.settleLocked(e)
	s.mu.Unlock()
	if news {
		s.tell(e)
	}
}

// unseen records that the API server could not be asked. What was seen before stays.
func (s *Store) unseen(e *entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.outage == nil {
		e.failing = time.Now()
	}
	e.outage = err
	if e.synced {
		return
	}
	e.err = err
	s.settleLocked(e)
}

// settleLocked ends the waiting for an answer, unless it was asked for too early.
func (s *Store) settleLocked(e *entry) {
	if !e.asked {
		return
	}
	select {
	case <-e.known:
	default:
		close(e.known)
	}
}

// Faults returns which objects cannot be watched: what was last seen serves.
func (s *Store) Faults() []fault.Fault {
	faults := s.services.faults()
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, e := range s.mu.entries {
		if e.outage != nil {
			faults = append(faults, fault.Fault{Object: ref.String(), Message: e.outage.Error(), Since: e.failing})
		}
	}
	return faults
}

// tell calls the subscribers for every holder of an object, outside the lock.
func (s *Store) tell(e *entry) {
	s.mu.Lock()
	holders := make([]types.UID, 0, len(e.holders))
	for uid := range e.holders {
		holders = append(holders, uid)
	}
	subscribers := slices.Clone(s.mu.subscribers)
	s.mu.Unlock()
	for _, changed := range subscribers {
		for _, uid := range holders {
			changed(uid)
		}
	}
}
