package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/retry"
)

const (
	firstRetry   = 500 * time.Millisecond
	firstWaiting = 20 * time.Millisecond // as firstRetry, for what an API object may end at any moment
	waitingRetry = 5 * time.Second       // the longest of these
	slow         = 5 * time.Second       // a pod that takes longer gives its place to another
	patience     = 5 * time.Second       // how long Run waits for operations that hang
)

// Run works until ctx is done and every operation that it started has ended.
// Operations that hang in the kernel cannot be ended: Run then returns an error
// that names their pods, after a few seconds. Nothing is unmounted at the end.
func (m *Manager) Run(ctx context.Context) error {
	m.reconstruct(ctx)
	close(m.reconstructed)

	var work sync.WaitGroup
	places := make(chan struct{}, m.cfg.Parallel)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(m.startDue(ctx, &work, places))
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-timer.C:
		}
	}
	return m.finish(&work)
}

// finish waits for the operations under way.
func (m *Manager) finish(work *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { // outlives Run only if an operation does
		work.Wait()
		close(done)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var hanging []string
	for _, st := range m.mu.pods {
		for _, d := range st.underWayLocked() {
			hanging = append(hanging, fmt.Sprintf("%s: %s", st.object(), d.what))
		}
	}
	slices.Sort(hanging)
	return fmt.Errorf("volume operations hang and are left to themselves: %s", strings.Join(hanging, "; "))
}

// reconstruct learns what is on disk. Where it cannot, nothing is lost: to set
// up a volume that is there is no harm, and what is left over is swept later.
func (m *Manager) reconstruct(ctx context.Context) {
	found, err := m.cfg.Folders.Found(ctx)
	if err != nil && ctx.Err() == nil {
		m.cfg.Log.Error("volumes of an earlier run cannot all be listed", "err", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range found {
		st := m.stateLocked(f.PodUID)
		st.volumes[f.ID] = volumeState{path: f.Path, readOnly: f.ReadOnly, complete: f.Complete, pv: f.PV, inUse: f.InUse}
		if f.Name != "" {
			st.names[f.Name] = f.ID
		}
	}
}

// startDue starts work on every pod that is due while there are places, and
// returns when to look again.
func (m *Manager) startDue(ctx context.Context, work *sync.WaitGroup, places chan struct{}) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	next := time.Hour
	for _, st := range m.mu.pods {
		for _, p := range st.parts {
			if !p.started {
				p.started = true
				work.Go(func() { m.bindPart(ctx, st, p) })
			}
		}
		if st.busy || st.due.IsZero() || st.intent == unwanted && len(st.parts) > 0 {
			continue // the end of what is under way rings
		}
		if wait := st.due.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			continue // whoever gives back a place wakes the loop
		}
		st.busy = true
		work.Go(func() { m.work(ctx, st, places) })
	}
	return next
}

// work brings one pod to what is wanted, holding a place among those that work.
func (m *Manager) work(ctx context.Context, st *podState, places chan struct{}) {
	giveBack := sync.OnceFunc(func() {
		<-places
		m.wake.Ring()
	})
	late := time.AfterFunc(slow, func() {
		giveBack()
		m.logLong(st)
	})
	defer giveBack()
	defer late.Stop()
	m.reconcile(ctx, st)
}

// reconcile makes one try for one pod.
func (m *Manager) reconcile(ctx context.Context, st *podState) {
	m.mu.Lock()
	asked, want, sweep, pod, names := st.asked, st.intent, st.sweep, st.pod, maps.Clone(st.names)
	m.mu.Unlock()

	var resolved []resolution
	if want == wanted {
		resolved = m.resolve(ctx, pod, names)
	}
	m.mu.Lock()
	if want == wanted && st.intent == wanted {
		m.useLocked(st, resolved)
	}
	actual := maps.Clone(st.volumes)
	m.mu.Unlock()
	steps, errs := plan(want, sweep, resolved, actual)
	for _, s := range steps {
		if want == unwanted && len(errs) > 0 && s.op != tearDown {
			break // the pod's folder goes only when all else is gone
		}
		if !m.still(st, want) {
			break // something else is wanted by now
		}
		began := time.Now()
		err := m.apply(ctx, st, s)
		m.measure(&s, began, err)
		if err != nil {
			errs = append(errs, err)
			if s.op == cleanSubPaths {
				break // a volume of which a part is mounted elsewhere cannot go
			}
		}
	}
	m.settle(ctx, st, asked, want, podvolumes.Join(errs...))
}

// still reports whether a pod is wanted, or not, as it was when a try began.
func (m *Manager) still(st *podState, want intent) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return st.intent == want
}

// resolve finds out what each of the pod's volumes is made of. Where that fails,
// names say which volume it is if it is there.
func (m *Manager) resolve(ctx context.Context, pod *v1.Pod, names map[string]podvolumes.ID) []resolution {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Resolve)
	defer cancel()
	host := m.cfg.Host()
	var all []resolution
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if podvolumes.ByRuntime(v) {
			continue
		}
		volume, err := podvolumes.Resolve(ctx, pod, v, m.cfg.Objects, host)
		if err != nil {
			all = append(all, resolution{name: v.Name, id: names[v.Name], err: err})
			continue
		}
		all = append(all, resolution{name: v.Name, id: volume.ID, volume: &volume})
	}
	return all
}

// apply does one step and records what it changed.
func (m *Manager) apply(ctx context.Context, st *podState, s step) error {
	m.begin(st, s.String())
	defer m.begin(st, "")
	switch s.op {
	case setUp:
		path, err := m.cfg.Mounts.SetUp(ctx, s.volume)
		if err != nil {
			// Part of it may be there: it has to be torn down some day. A content
			// that was whole before still is.
			m.note(st, s.id, func(v volumeState) volumeState { return v })
			return err
		}
		m.note(st, s.id, func(before volumeState) volumeState {
			now := noted(s.volume)
			now.path, now.readOnly, now.complete, now.verified, now.grown = path, s.volume.ReadOnly, s.id.Kind.Outlasts(), true, before.grown
			return now
		})
		m.name(st, s.name, s.id)
	case grow:
		if m.cfg.Grower == nil {
			return nil
		}
		if !m.isSetUp(st, s.id) {
			return nil // that failed, and its error says why
		}
		if err := m.cfg.Grower.Grow(ctx, s.volume); err != nil {
			return err
		}
		m.note(st, s.id, func(v volumeState) volumeState {
			v.grown = s.volume.GrowTo
			return v
		})
	case keep:
		m.name(st, s.name, s.id)
		if s.err != nil {
			m.cfg.Log.Debug("volume keeps the content it has", "podUID", st.uid, "volume", s.name, "err", s.err)
		}
	case cleanSubPaths:
		return m.cfg.SubPaths.CleanSubPaths(ctx, st.uid)
	case tearDown:
		if err := m.cfg.Mounts.TearDown(ctx, st.uid, s.id); err != nil {
			return err
		}
		m.mu.Lock()
		delete(st.volumes, s.id)
		m.mu.Unlock()
	case removePod:
		return m.cfg.Folders.RemovePod(ctx, st.uid)
	}
	return nil
}

func (m *Manager) note(st *podState, id podvolumes.ID, change func(volumeState) volumeState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st.volumes[id] = change(st.volumes[id])
}

func (m *Manager) isSetUp(st *podState, id podvolumes.ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return st.volumes[id].verified
}

func (m *Manager) name(st *podState, name string, id podvolumes.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st.names[name] = id
}

// settle records how a try ended and when the next one is due.
func (m *Manager) settle(ctx context.Context, st *podState, asked uint64, want intent, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st.busy, st.doing = false, doing{}
	defer st.tell()
	defer m.wake.Ring() // the pod may be due again, and its place was given back long ago if it was slow
	m.tellInUseLocked()
	if ctx.Err() != nil {
		return
	}
	m.logLocked(st, err)
	if st.err == nil {
		st.failing = time.Now()
	}
	st.err = err
	switch {
	case st.asked != asked || st.intent != want:
		st.due = time.Now() // something was asked meanwhile; its own try follows
	case err != nil:
		st.failures++
		st.due = time.Now().Add(m.pause(st.failures, err))
	case want == unwanted:
		st.gone = true
		delete(m.mu.pods, st.uid)
		m.cfg.Holder.Release(st.uid)
		m.unblockLocked()
		return
	default:
		st.failures = 0
		st.due = m.nextCheck(st)
	}
	if err == nil && want == wanted {
		st.reached = asked
	}
}

// pause returns how long to wait after so many failures in a row.
func (m *Manager) pause(failures int, err error) time.Duration {
	if errors.Is(err, podvolumes.ErrWaiting) {
		// Mostly the API server does not know the new pod everywhere yet, and refuses
		// its token for a moment.
		return retry.Pause(failures, firstWaiting, min(m.cfg.MaxRetry, waitingRetry))
	}
	return retry.Pause(failures, firstRetry, m.cfg.MaxRetry)
}

// nextCheck returns when the content of a pod's volumes is compared next; zero
// if it has none. Pods spread over the period by their UID.
func (m *Manager) nextCheck(st *podState) time.Time {
	for id := range st.volumes {
		if id.Kind.Renews() && st.intent == wanted {
			hash := fnv.New32a()
			hash.Write([]byte(st.uid))
			spread := time.Duration(hash.Sum32()) % m.cfg.Period
			now := time.Now()
			next := now.Truncate(m.cfg.Period).Add(spread)
			for !next.After(now) {
				next = next.Add(m.cfg.Period)
			}
			return next
		}
	}
	return time.Time{}
}

// logLocked tells when a pod's volumes begin to fail, fail otherwise or recover.
func (m *Manager) logLocked(st *podState, err error) {
	log := m.cfg.Log.With("podUID", st.uid)
	if st.pod != nil {
		log = log.With("pod", st.pod.Namespace+"/"+st.pod.Name)
	}
	switch {
	case err == nil && st.err != nil:
		log.Info("volumes are in order again")
	case err != nil && (st.err == nil || st.err.Error() != err.Error()):
		log.Warn("volumes are not in order; trying again", "err", err)
	}
}
