package volumemanager

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// WaitForMount has the volumes of a pod mounted and kept up to date from now
// on, and returns when all are there. If ctx ends before, the error says for
// each volume that is not there why, and matches podvolumes.ErrWaiting if an
// API object is missing; the mounting goes on all the same, and a later call
// returns as soon as it is done. For a pod that has its volumes it is cheap.
func (m *Manager) WaitForMount(ctx context.Context, pod *v1.Pod) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	st := m.stateLocked(pod.UID)
	before := st.pod
	fresh := before == nil || st.intent != wanted
	st.pod, st.intent, st.sweep = pod, wanted, false
	changed := fresh || !sameContent(before, pod)
	mounts := fresh || changed && !sameVolumes(before, pod)
	m.mu.Unlock()

	if changed {
		m.cfg.Holder.Hold(pod) // first, so that the try finds the objects on their way
		m.mu.Lock()
		m.askLocked(st)
		if mounts {
			st.mustReach = st.asked
		}
		m.mu.Unlock()
	}
	return m.wait(ctx, st, func() bool { return st.phase() == phaseMounted })
}

// Unmount has the volumes of a pod unmounted and removed, and returns when none
// is left. If ctx ends before, it goes on all the same. The caller sees to it
// that no container of the pod runs.
func (m *Manager) Unmount(ctx context.Context, uid types.UID) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	st := m.stateLocked(uid)
	if st.intent != unwanted {
		m.dropLocked(st)
	}
	m.mu.Unlock()
	return m.wait(ctx, st, func() bool { return st.phase() == phaseGone })
}

// dropLocked has a pod's volumes unmounted.
func (m *Manager) dropLocked(st *podState) {
	st.intent, st.pod, st.uses, st.blocked = unwanted, nil, nil, false
	m.askLocked(st)
}

// ready waits until it is known what is on disk.
func (m *Manager) ready(ctx context.Context) error {
	select {
	case <-m.reconstructed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("find out which volumes are there: %w", context.Cause(ctx))
	}
}

// wait returns when done, which is called with the lock held, is true, or ctx ends.
func (m *Manager) wait(ctx context.Context, st *podState, done func() bool) error {
	for {
		m.mu.Lock()
		if done() {
			m.mu.Unlock()
			return nil
		}
		changed := st.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return m.why(st, context.Cause(ctx))
		}
	}
}

// why returns why a pod's volumes are not as they are wanted.
func (m *Manager) why(st *podState, cause error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := podvolumes.Join(append(st.longLocked(), st.err)...)
	if err == nil {
		return fmt.Errorf("volume operations are under way: %w", cause)
	}
	return &stillWrong{err, cause}
}

// stillWrong is why the volumes of a pod are not there yet, when whoever waited
// for them gave up. That there was a wait is nothing to tell a person.
type stillWrong struct{ err, cause error }

func (s *stillWrong) Error() string   { return s.err.Error() }
func (s *stillWrong) Unwrap() []error { return []error{s.err, s.cause} }

// Poke has the volumes of a pod compared at once, because an object that it
// holds has changed. It never blocks, and is nothing for a pod that is not mounted.
func (m *Manager) Poke(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st := m.mu.pods[uid]; st != nil && st.intent == wanted {
		m.askLocked(st)
	}
}

// Faults returns which pods' volumes are not in order, wanted or not, and what
// has been under way for long.
func (m *Manager) Faults() []fault.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	var faults []fault.Fault
	for _, st := range m.mu.pods {
		for _, d := range st.underWayLocked() {
			if time.Since(d.since) >= long {
				faults = append(faults, fault.Fault{Object: st.object(), Message: (&longError{d}).Error(), Since: d.since})
			}
		}
		if st.err != nil {
			faults = append(faults, fault.Fault{Object: st.object(), Message: st.err.Error(), Since: st.failing})
		}
	}
	return faults
}

// Paths returns the path on the host of each volume of a pod that is there and
// has files, by the pod's name for it.
func (m *Manager) Paths(uid types.UID) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	paths := map[string]string{}
	if st := m.mu.pods[uid]; st != nil {
		for name, id := range st.names {
			if v, ok := st.volumes[id]; ok && v.path != "" && !id.Block {
				paths[name] = v.path
			}
		}
	}
	return paths
}

// ReadOnly reports whether a pod's volume is read-only as a whole. A mount that
// does not say so would be made writable by some runtimes.
func (m *Manager) ReadOnly(uid types.UID, volume string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.mu.pods[uid]
	return st != nil && st.volumes[st.names[volume]].readOnly
}

// Devices returns each block volume of a pod that is there, by the pod's name for it.
func (m *Manager) Devices(uid types.UID) map[string]podvolumes.Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	devices := map[string]podvolumes.Device{}
	if st := m.mu.pods[uid]; st != nil {
		for name, id := range st.names {
			if v, ok := st.volumes[id]; ok && v.path != "" && id.Block {
				devices[name] = podvolumes.Device{Path: v.path, ReadOnly: v.readOnly}
			}
		}
	}
	return devices
}

// SubPath makes a part of a mounted volume a mount of its own, for one volume
// mount of a container, and returns its path on the host. It lives until the
// pod's volumes are unmounted. If ctx ends before, the binding goes on, and a
// later call for the same part gets its result. The caller leaves out
// VolumePath, ReadOnly and Content, which the manager knows.
func (m *Manager) SubPath(ctx context.Context, spec podvolumes.SubPath) (string, error) {
	m.mu.Lock()
	st := m.mu.pods[spec.PodUID]
	if st != nil && st.intent == wanted {
		id := st.names[spec.Volume]
		have := st.volumes[id]
		spec.VolumePath, spec.ReadOnly, spec.Content = have.path, have.readOnly, id.Kind.HasContent()
	}
	if spec.VolumePath == "" {
		m.mu.Unlock()
		return "", fmt.Errorf("%s: the volume is not mounted", describePart(spec))
	}
	p := st.parts[spec]
	if p == nil {
		p = &part{spec: spec, since: time.Now(), done: make(chan struct{})}
		st.parts[spec] = p
		m.wake.Ring()
	}
	m.mu.Unlock()
	select {
	case <-p.done:
		return p.path, p.err
	case <-ctx.Done():
		return "", fmt.Errorf("%w: %w", &longError{doing{describePart(spec), p.since}}, context.Cause(ctx))
	}
}
