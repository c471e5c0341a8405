package volumemanager

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// An intent says what is wanted of a pod's volumes.
type intent int

const (
	unsaid   intent = iota // found on disk; nobody has said anything yet: leave it
	wanted                 // mount, and keep up to date
	unwanted               // unmount
)

// podState is both worlds of one pod. The manager's lock guards it.
//
//	found on disk
//	      │
//	      ▼       WaitForMount
//	   unsaid ───────────────────► mounting ◄─┐
//	      │                         │   ▲     │ other volumes named,
//	      │                all      │   │     │ or taken back: WaitForMount
//	      │ Sweep,         there    ▼   │     │
//	      │ Unmount                mounted    │
//	      │                         │         │
//	      │              Unmount    ▼         │
//	      └─────────────────────► unmounting ─┘
//	                                │
//	                  nothing left  ▼
//	                               gone          its UID may come again, as if new
//
// Mounting goes over into unmounting too. A try that fails leaves the phase as
// it is and is made again; one that is under way when something else is asked
// ends first, and the next begins at once from what it left. No phase is left
// because the manager stops.
type podState struct {
	uid types.UID

	// Desired.
	intent intent
	pod    *v1.Pod               // as last given; nil unless wanted
	sweep  bool                  // when nothing is mounted any more, the pod's folder goes too
	asked  uint64                // counts what was asked: each change is a new number
	uses   []v1.UniqueVolumeName // of what it wants

	// Actual.
	volumes map[podvolumes.ID]volumeState
	names   map[string]podvolumes.ID     // the pod's names for its volumes
	parts   map[podvolumes.SubPath]*part // being bound

	// Progress.
	mustReach uint64        // the latest number of asked that WaitForMount waits for
	reached   uint64        // the number of asked that the last full success had seen
	err       error         // why the last try was not a full success; nil: none ended, or it was
	failing   time.Time     // since when tries fail, with err
	failures  int           // in a row
	blocked   bool          // the last try found a volume that another pod has
	due       time.Time     // when to look again; zero: only when asked
	busy      bool          // a goroutine works on the pod
	doing     doing         // the step that it is at
	gone      bool          // no longer in the map
	changed   chan struct{} // closed and renewed whenever progress changes
}

// volumeState is one volume that is there.
type volumeState struct {
	path     string // what containers mount
	readOnly bool
	complete bool                // can be used as it is without its objects
	verified bool                // set up by this process, and not only found
	grown    int64               // bytes to which this process has grown it; 0: it did not
	pv       string              // the PersistentVolume behind it
	inUse    v1.UniqueVolumeName // as of a podvolumes.Volume
}

// A phase is where a pod is in the drawing above.
type phase string

const (
	phaseUnsaid     phase = "unsaid"
	phaseMounting   phase = "mounting"
	phaseMounted    phase = "mounted"
	phaseUnmounting phase = "unmounting"
	phaseGone       phase = "gone"
)

func (st *podState) phase() phase {
	switch {
	case st.gone:
		return phaseGone
	case st.intent == unwanted:
		return phaseUnmounting
	case st.intent == unsaid:
		return phaseUnsaid
	case st.reached < st.mustReach:
		return phaseMounting
	default:
		return phaseMounted
	}
}

func (m *Manager) stateLocked(uid types.UID) *podState {
	st := m.mu.pods[uid]
	if st == nil {
		st = &podState{uid: uid, volumes: map[podvolumes.ID]volumeState{}, names: map[string]podvolumes.ID{}, parts: map[podvolumes.SubPath]*part{}, changed: make(chan struct{})}
		m.mu.pods[uid] = st
	}
	return st
}

// askLocked makes a pod due now.
func (m *Manager) askLocked(st *podState) {
	st.asked++
	st.failures = 0
	st.due = time.Now()
	m.wake.Ring()
}

// tell wakes who waits for the pod.
func (st *podState) tell() {
	close(st.changed)
	st.changed = make(chan struct{})
}

// sameVolumes reports whether two versions of a pod mount the same.
func sameVolumes(a, b *v1.Pod) bool {
	return equality.Semantic.DeepEqual(a.Spec.Volumes, b.Spec.Volumes)
}

// sameContent reports whether two versions of a pod tell the same about
// themselves in the files of the downward API, and refer to the same objects.
func sameContent(a, b *v1.Pod) bool {
	if a == b {
		return true
	}
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}
