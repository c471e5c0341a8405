// Package podstatus makes of what is observed of a pod the status that the API
// shows, and brings it there.
//
// It reads observations (Report), what the API has (Observe, ObserveMirror),
// and the workers' word on whether a pod may still run. It writes the status
// subresource of pods, with a patch that only applies to the pod's UID, and
// deletes a pod from the API once it was asked to go and nothing of it is left.
// The status of a static pod goes to its mirror.
//
// It promises: one writer of a pod's status; a pod is told to be Succeeded or
// Failed only when none of its containers runs, and never leaves these phases;
// changes of one pod are coalesced and sent at once, in order, and sent again
// with back-off while the API does not answer; no caller ever waits for the API.
// A stopping agent sends what it still has, for a moment.
//
// All methods may be called from any goroutine.
package podstatus

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// Config holds what a Manager needs. Log is required.
type Config struct {
	Log  *slog.Logger
	Pods typedv1.PodsGetter // nil: there is no API, statuses are only kept

	// Terminating reports whether the end of a pod was asked for, and
	// CouldHaveRunning whether containers of it may run. Nil: no.
	Terminating      func(uid types.UID) bool
	CouldHaveRunning func(uid types.UID) bool

	Probes  prober          // nil: no probes
	HostIPs func() []string // the node's addresses, the primary one first; nil: none
	Runtime string          // scheme of container IDs; default "containerd"
	// Devices returns how the devices of a regular container are. It must not block.
	// Nil: none has any.
	Devices func(uid types.UID, container string) []v1.ResourceStatus

	Parallel   int           // patches in flight at once; default 8
	RetryMin   time.Duration // first pause after a failed patch; default 100 ms, doubled each time
	RetryMax   time.Duration // longest pause after a failed patch; default 10 s
	Timeout    time.Duration // of one call of the API; default 30 s
	FlushAfter time.Duration // how long a stopping Manager still sends; default 2 s
}

func (c Config) withDefaults() Config {
	if c.Terminating == nil {
		c.Terminating = func(types.UID) bool { return false }
	}
	if c.CouldHaveRunning == nil {
		c.CouldHaveRunning = func(types.UID) bool { return false }
	}
	if c.Devices == nil {
		c.Devices = func(types.UID, string) []v1.ResourceStatus { return nil }
	}
	if c.HostIPs == nil {
		c.HostIPs = func() []string { return nil }
	}
	if c.Runtime == "" {
		c.Runtime = "containerd"
	}
	if c.Parallel <= 0 {
		c.Parallel = 8
	}
	c.RetryMin = cmp.Or(c.RetryMin, 100*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, 10*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.FlushAfter = cmp.Or(c.FlushAfter, 2*time.Second)
	return c
}

// A Manager keeps the status of every pod and brings it to the API.
type Manager struct {
	cfg  Config
	wake wake.Bell // something is to be sent

	mu       sync.Mutex // guards the fields below
	entries  map[types.UID]*entry
	queue    []*entry // dirty and not in flight, in the order in which they got so
	inFlight int      // entries that are being sent
}

// An entry is what is known of one pod.
type entry struct {
	uid    types.UID
	pod    *v1.Pod      // as last reported; nil: not yet
	status v1.PodStatus // as last computed; meaningless while pod is nil
	api    *v1.Pod      // as the API has it, of a static pod its mirror; nil: not there

	pending  *allocation.Pending  // a resize that waits; nil: none
	wanted   *v1.Pod              // with pending: has what it waits for
	progress *allocation.Progress // a resize that is being done; nil: none
	end      *End                 // the node ends it before its time; nil: it does not

	rejected bool // it was not admitted: nothing is observed of it
	finished bool // nothing is left of it on this node
	fresh    bool // a new instance of a UID that had finished: what was told before is not of it
	deleted  bool // we deleted it from the API
	held     bool // the phase was not sent, as containers may run

	dirty    bool // differs, or may differ, from what the API has
	sending  bool // a call is in flight
	failures int
	after    time.Time // do not send before
}

// New returns a Manager that sends nothing until Run.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg.withDefaults(), wake: wake.NewBell(), entries: map[types.UID]*entry{}}
}

// Report computes the status of a pod from what was observed of it, keeps it
// and has it sent. waits is by container name.
func (m *Manager) Report(pod *v1.Pod, status *observed.Status, waits map[string]reason.Wait) v1.PodStatus {
	in := Input{
		Pod: pod, Observed: status, Waits: waits,
		Ended:   m.cfg.Terminating(pod.UID) && !status.Running(),
		Probes:  m.cfg.Probes,
		HostIPs: m.cfg.HostIPs(),
		Runtime: m.cfg.Runtime,
		Now:     time.Now(),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entryLocked(pod.UID)
	if e.rejected {
		return *e.status.DeepCopy()
	}
	if e.finished {
		e.finished, e.fresh, e.pod, e.end = false, true, nil, nil
	}
	in.Previous = *e.previous(pod)
	in.Others = pod.Status.Conditions
	if e.api != nil {
		in.Others = e.api.Status.Conditions
	}
	if e.pending != nil && !allocation.Differs(pod, e.wanted) {
		e.pending, e.wanted = nil, nil
	}
	in.Pending, in.Progress, in.End = e.pending, e.progress, e.end
	now := Compute(in)
	for i := range now.ContainerStatuses {
		c := &now.ContainerStatuses[i]
		c.AllocatedResourcesStatus = m.cfg.Devices(pod.UID, c.Name)
	}
	m.setLocked(e, pod, now)
	return *e.status.DeepCopy()
}

// SetPending says that a pod waits for the resources of wanted, and why. Nil: it
// waits no longer. The next Report tells of it; one of a pod without these
// resources goes on to tell that it waits, as nothing else says that the pod has
// them not.
func (m *Manager) SetPending(wanted *v1.Pod, pending *allocation.Pending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entryLocked(wanted.UID)
	if pending != nil {
		e.pending = pending
	}
	if e.pending != nil {
		e.wanted = wanted
	}
}

// SetProgress says which resize of a pod is being done, nil: none. The next
// Report tells of it.
func (m *Manager) SetProgress(uid types.UID, progress *allocation.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entryLocked(uid).progress = progress
}

// Reject makes a pod that was not admitted Failed, with upstream's message. It
// stays so until Admit.
func (m *Manager) Reject(pod *v1.Pod, why, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entryLocked(pod.UID)
	e.rejected = true
	s := *e.previous(pod).DeepCopy()
	s.StartTime = startTime(&Input{Previous: s, Now: time.Now()})
	s.Phase, s.Reason, s.Message = v1.PodFailed, why, rejectedText+message
	s.QOSClass = qosClass(pod)
	s.ObservedGeneration = pod.Generation
	unready(&s, metav1.Now())
	normalize(&s)
	m.setLocked(e, pod, s)
}

// Admit takes back a Reject: the pod starts after all.
func (m *Manager) Admit(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[uid]; e != nil && e.rejected {
		e.rejected = false
		e.status.Phase, e.status.Reason, e.status.Message = v1.PodPending, "", ""
		m.dirtyLocked(e)
	}
}

// SetTerminated says that nothing is left of a pod on this node: its status
// becomes final, and if the API wants the pod gone, it is deleted there.
func (m *Manager) SetTerminated(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entryLocked(pod.UID)
	e.finished = true
	m.setLocked(e, pod, final(pod, e.previous(pod), metav1.Now().Rfc3339Copy()))
	m.dirtyLocked(e) // its phase may be held, or it only has to be deleted
}

// Get returns the status of a pod as last computed, or false.
func (m *Manager) Get(uid types.UID) (v1.PodStatus, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[uid]
	if e == nil || e.pod == nil {
		return v1.PodStatus{}, false
	}
	return *e.status.DeepCopy(), true
}

// Deadline returns when a pod's activeDeadlineSeconds end, or false.
func (m *Manager) Deadline(pod *v1.Pod) (time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[pod.UID]
	if e == nil || e.pod == nil {
		return time.Time{}, false
	}
	return deadline(pod, e.status.StartTime)
}

// Observe says what the API has of a pod of its own. An older version than one
// that is known changes nothing.
func (m *Manager) Observe(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observeLocked(m.entryLocked(pod.UID), pod)
}

// ObserveMirror says what the API has of a static pod: its mirror, or nil if it
// has none that stands for this version of the pod.
func (m *Manager) ObserveMirror(static, mirror *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entryLocked(static.UID)
	if mirror == nil {
		e.api = nil
		return
	}
	m.observeLocked(e, mirror)
}

func (m *Manager) observeLocked(e *entry, pod *v1.Pod) {
	if e.take(pod) && e.pod != nil {
		m.dirtyLocked(e)
	}
}

// take takes pod as what the API has, unless that is older than what is known.
func (e *entry) take(pod *v1.Pod) bool {
	if e.api != nil && e.api.UID == pod.UID {
		if order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, e.api.ResourceVersion); err == nil && order <= 0 {
			return false
		}
	}
	e.api = pod
	return true
}

// Forget drops every pod that is not to be kept. It is for pods that neither a
// source nor a worker has any more.
func (m *Manager) Forget(keep func(uid types.UID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, e := range m.entries {
		if !e.sending && !keep(uid) {
			e.dirty = false // and so leaves the queue
			delete(m.entries, uid)
		}
	}
}

func (m *Manager) entryLocked(uid types.UID) *entry {
	e := m.entries[uid]
	if e == nil {
		e = &entry{uid: uid}
		m.entries[uid] = e
	}
	return e
}

// previous is the status that the next one follows on: ours if there is one,
// else what an earlier agent told the API. A static pod that an earlier agent
// ended begins anew, as it does whenever its mirror comes late. It must not be
// changed.
func (e *entry) previous(pod *v1.Pod) *v1.PodStatus {
	switch {
	case e.pod != nil:
		return &e.status
	case e.api != nil && !e.fresh && (!staticpod.IsStatic(pod) || !endedByNode(&e.api.Status)):
		return &e.api.Status
	default:
		return &pod.Status
	}
}

func (m *Manager) setLocked(e *entry, pod *v1.Pod, status v1.PodStatus) {
	same := e.pod != nil && equality.Semantic.DeepEqual(e.status, status)
	e.pod, e.status = pod, status
	if !same || e.held {
		m.dirtyLocked(e)
	}
}

func (m *Manager) dirtyLocked(e *entry) {
	if m.cfg.Pods == nil || e.api == nil || e.deleted {
		return
	}
	if !e.dirty {
		e.dirty = true
		if !e.sending {
			m.queue = append(m.queue, e)
		}
	}
	m.wake.Ring()
}

// Run sends statuses until ctx is done, and then what is still unsent, for
// FlushAfter at most.
func (m *Manager) Run(ctx context.Context) error {
	m.send(ctx, func() bool { return false })
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.cfg.FlushAfter)
	defer cancel()
	m.retryNow()
	m.send(flush, m.idle)
	return nil
}
