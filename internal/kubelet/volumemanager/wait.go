package volumemanager

import (
	"context"
	"fmt"

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
		changed, err := st.changed, st.err
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			if err == nil {
				return fmt.Errorf("volume operations are under way: %w", context.Cause(ctx))
			}
			return &stillWrong{err, context.Cause(ctx)}
		}
	}
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

// Faults returns which pods' volumes are not in order, wanted or not.
func (m *Manager) Faults() []fault.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	var faults []fault.Fault
	for _, st := range m.mu.pods {
		if st.err == nil {
			continue
		}
		faults = append(faults, fault.Fault{Object: st.object(), Message: st.err.Error(), Since: st.failing})
	}
	return faults
}

// Paths returns the path on the host of each volume of a pod that is there, by
// the pod's name for it.
func (m *Manager) Paths(uid types.UID) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	paths := map[string]string{}
	if st := m.mu.pods[uid]; st != nil {
		for name, id := range st.names {
			if v, ok := st.volumes[id]; ok && v.path != "" {
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

// SubPath makes a part of a mounted volume a mount of its own, for one volume
// mount of a container, and returns its path on the host. It lives until the
// pod's volumes are unmounted. The caller leaves out VolumePath, ReadOnly and
// Content, which the manager knows.
func (m *Manager) SubPath(ctx context.Context, part podvolumes.SubPath) (string, error) {
	m.mu.Lock()
	if st := m.mu.pods[part.PodUID]; st != nil {
		id := st.names[part.Volume]
		have := st.volumes[id]
		part.VolumePath, part.ReadOnly, part.Content = have.path, have.readOnly, id.Kind.HasContent()
	}
	m.mu.Unlock()
	if part.VolumePath == "" {
		return "", fmt.Errorf("subPath %q of %s: the volume is not mounted", part.Path, podvolumes.Describe(part.Volume))
	}
	return m.cfg.SubPaths.BindSubPath(ctx, part)
}
