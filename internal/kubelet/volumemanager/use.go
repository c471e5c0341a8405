package volumemanager

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// InUse returns the names of the volumes that this node uses or is about to
// use and that could be detached from it, in order: what Node.status.volumesInUse
// says. A volume is among them from before it is set up until nothing of it is left.
func (m *Manager) InUse() []v1.UniqueVolumeName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inUseLocked()
}

func (m *Manager) inUseLocked() []v1.UniqueVolumeName {
	var names []v1.UniqueVolumeName
	for _, st := range m.mu.pods {
		names = append(names, st.uses...)
		for _, v := range st.volumes {
			if v.inUse != "" {
				names = append(names, v.inUse)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// tellInUseLocked tells that InUse changed, if it did.
func (m *Manager) tellInUseLocked() {
	now := m.inUseLocked()
	if !slices.Equal(now, m.mu.inUse) {
		m.mu.inUse = now
		m.cfg.InUseChanged()
	}
}

// useLocked notes what a pod is about to use, and holds back what it may not
// use yet. What it gets for itself alone is its own from here on, so that of two
// pods that come at once one is first.
func (m *Manager) useLocked(st *podState, resolved []resolution) {
	if st.intent != wanted {
		return // dropped meanwhile; what was noted would never go
	}
	st.uses, st.blocked = nil, false
	for i := range resolved {
		r := &resolved[i]
		if r.volume == nil {
			continue
		}
		if r.volume.InUse != "" {
			st.uses = append(st.uses, r.volume.InUse)
		}
		if _, there := st.volumes[r.id]; there || !r.volume.OncePod {
			continue
		}
		if other := m.userLocked(r.volume.PV.Name, st.uid); other != nil {
			st.blocked = true
			r.hold = fmt.Errorf("%s: it uses the ReadWriteOncePod access mode and is already in use by another pod, %s", podvolumes.Describe(r.name), other.object())
			continue
		}
		st.volumes[r.id] = noted(r.volume)
	}
	m.tellInUseLocked()
	for i := range resolved {
		r := &resolved[i]
		if r.volume != nil && r.hold == nil && r.volume.InUse != "" && !m.cfg.Reported(r.volume.InUse) {
			r.hold = &unreportedError{r.name}
		}
	}
}

// noted is what is known of a volume before it is set up.
func noted(v *podvolumes.Volume) volumeState {
	known := volumeState{inUse: v.InUse}
	if v.PV != nil {
		known.pv = v.PV.Name
	}
	return known
}

// userLocked returns a pod other than uid that has a PersistentVolume, or nil.
func (m *Manager) userLocked(pv string, uid types.UID) *podState {
	for _, st := range m.mu.pods {
		if st.uid == uid {
			continue
		}
		for _, v := range st.volumes {
			if v.pv == pv {
				return st
			}
		}
	}
	return nil
}

// unblockLocked has those look again that waited for another pod's volume.
func (m *Manager) unblockLocked() {
	for _, st := range m.mu.pods {
		if st.blocked {
			m.askLocked(st)
		}
	}
}

// object names the pod for people.
func (st *podState) object() string {
	if st.pod != nil {
		return fault.Pod(st.pod.Namespace, st.pod.Name)
	}
	return "Pod with UID " + string(st.uid)
}

// An unreportedError says that the API does not know yet that a volume is in use.
type unreportedError struct{ volume string }

func (e *unreportedError) Error() string {
	return fmt.Sprintf("waiting until the node's status says that %s is in use", podvolumes.Describe(e.volume))
}

// Is matches podvolumes.ErrWaiting: nobody has to do anything.
func (e *unreportedError) Is(target error) bool { return target == podvolumes.ErrWaiting }
