package podstatus

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// prober says what the probes of a container found. Containers are named by
// the runtime's ID, without scheme. known is false before the first result.
type prober interface {
	Startup(containerID string) (healthy, known bool)
	Readiness(containerID string) (healthy, known bool)
}

// An Input is all that a pod's status is computed from.
type Input struct {
	Pod      *v1.Pod
	Observed *observed.Status       // nil: nothing is known to run
	Waits    map[string]reason.Wait // by container name: why it does not run
	Previous v1.PodStatus           // what was computed last, or else what the API has
	Pending  *allocation.Pending    // a resize that waits; nil: none
	Progress *allocation.Progress   // a resize that is being done; nil: none
	Others   []v1.PodCondition      // what the API has; all but the kubelet's own are kept
	Ended    bool                   // nothing runs, and nothing will run again
	End      *End                   // the node ends the pod before its time; nil: it does not
	Probes   prober                 // nil: containers with probes are judged by whether they run
	HostIPs  []string               // the node's, the primary one first
	Runtime  string                 // the scheme of container IDs, such as "containerd"
	Now      time.Time
}

// Reasons and messages that upstream's kubelet has for the same facts.
const (
	deadlineReason  = reason.DeadlineExceeded
	deadlineMessage = "Pod was active on the node longer than the specified deadline"
)

// Compute returns the status of a pod as the upstream kubelet would report it:
// phase, conditions in upstream's order, container statuses (init containers in
// the order of the specification, others by name), addresses. It changes
// nothing that it is given.
func Compute(in Input) v1.PodStatus {
	pod := in.Pod
	s := v1.PodStatus{
		QOSClass:           qosClass(pod),
		ObservedGeneration: pod.Generation,
		StartTime:          startTime(&in),
	}
	if pod.Spec.Resources != nil {
		s.AllocatedResources = pod.Spec.Resources.Requests
		s.Resources = pod.Spec.Resources.DeepCopy()
		if in.Progress != nil && in.Previous.Resources != nil {
			s.Resources = in.Previous.Resources.DeepCopy() // until its containers are there
		}
	}
	setAddresses(&s, &in)
	s.InitContainerStatuses = containerStatuses(&in, initContainers)
	s.ContainerStatuses = containerStatuses(&in, regularContainers)
	s.EphemeralContainerStatuses = containerStatuses(&in, ephemeralContainers)

	setPhase(&s, &in)
	told := s
	if in.End != nil && in.Observed.Running() {
		told.Phase = phase(&s, &in) // it serves until it has ended
	}
	s.Conditions = conditions(&told, &in)
	normalize(&s)
	return s
}

func qosClass(pod *v1.Pod) v1.PodQOSClass { return cmp.Or(pod.Status.QOSClass, qos.GetPodQOS(pod)) }

// startTime is when this node first saw the pod; it never changes. Of a static
// pod that an earlier agent started nothing says when that was but its sandboxes.
func startTime(in *Input) *metav1.Time {
	if t := in.Previous.StartTime; !t.IsZero() {
		return t.DeepCopy()
	}
	first := in.Now
	if in.Observed != nil {
		for _, s := range in.Observed.Sandboxes {
			if at := time.Unix(0, s.GetCreatedAt()); s.GetCreatedAt() > 0 && at.Before(first) {
				first = at
			}
		}
	}
	return &metav1.Time{Time: first}
}

// setPhase sets the phase, and the reason and message that go with it. A pod
// never leaves Succeeded or Failed.
func setPhase(s *v1.PodStatus, in *Input) {
	s.Phase = phase(s, in)
	if !terminal(s) {
		if at, ok := deadline(in.Pod, s.StartTime); ok && !in.Now.Before(at) {
			s.Phase, s.Reason, s.Message = v1.PodFailed, deadlineReason, deadlineMessage
		}
	}
	in.End.apply(s)
	for _, last := range []*v1.PodStatus{&in.Previous, &in.Pod.Status} {
		if terminal(last) && (last == &in.Pod.Status || !in.End.told(last)) {
			s.Phase, s.Reason, s.Message = last.Phase, last.Reason, last.Message
			return
		}
	}
	if s.Phase == in.Previous.Phase && s.Reason == "" {
		s.Reason = cmp.Or(in.Previous.Reason, in.Pod.Status.Reason)
		s.Message = cmp.Or(in.Previous.Message, in.Pod.Status.Message)
	}
}

// deadline is when a pod's activeDeadlineSeconds end.
func deadline(pod *v1.Pod, start *metav1.Time) (time.Time, bool) {
	if pod.Spec.ActiveDeadlineSeconds == nil || start.IsZero() {
		return time.Time{}, false
	}
	return start.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second), true
}

// phase is decided by the containers alone.
func phase(s *v1.PodStatus, in *Input) v1.PodPhase {
	t := tally{}
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		state := stateOf(s.InitContainerStatuses, c.Name)
		if podutil.IsRestartableInitContainer(c) {
			t.addSidecar(state)
		} else {
			t.addInit(state, c, &in.Pod.Spec)
		}
	}
	for i := range in.Pod.Spec.Containers {
		c := &in.Pod.Spec.Containers[i]
		t.add(stateOf(s.ContainerStatuses, c.Name), c, &in.Pod.Spec)
	}
	switch {
	case t.initFailed:
		return v1.PodFailed
	case t.initPending, t.sidecarPending && !regularStarted(in), t.waiting > 0, t.unknown > 0:
		return v1.PodPending
	case t.running > 0:
		return v1.PodRunning
	case t.stopped == 0:
		return v1.PodPending
	case in.Ended && !staticpod.IsStatic(in.Pod), t.stopped == t.forGood:
		if t.stopped == t.succeeded {
			return v1.PodSucceeded
		}
		return v1.PodFailed
	default:
		return v1.PodRunning // something is about to be restarted
	}
}

// A tally counts containers for the phase.
type tally struct {
	initFailed     bool // an init container has failed for good
	initPending    bool // an init container has not succeeded yet
	sidecarPending bool // a sidecar has not started yet

	unknown, waiting, running, stopped int
	forGood                            int // stopped that do not start again
	succeeded                          int // stopped with exit code 0
}

func (t *tally) addInit(cs *v1.ContainerStatus, c *v1.Container, spec *v1.PodSpec) {
	ended := lastEnd(cs)
	switch {
	case cs == nil || cs.State.Running != nil || ended == nil:
		t.initPending = true
	case ended.ExitCode != 0 && !startsAgain(ended, c, spec):
		t.initFailed = true
	}
}

func (t *tally) addSidecar(cs *v1.ContainerStatus) {
	switch {
	case cs == nil:
		t.unknown++
	case cs.State.Running != nil:
		t.running++
		t.sidecarPending = t.sidecarPending || cs.Started == nil || !*cs.Started
	case lastEnd(cs) != nil: // a sidecar that has ended does not count
	case cs.State.Waiting != nil:
		t.waiting++
		t.sidecarPending = true
	default:
		t.unknown++
		t.sidecarPending = true
	}
}

func (t *tally) add(cs *v1.ContainerStatus, c *v1.Container, spec *v1.PodSpec) {
	if cs == nil {
		t.unknown++
		return
	}
	ended := lastEnd(cs)
	switch {
	case cs.State.Running != nil:
		t.running++
	case ended != nil:
		t.stopped++
		if !startsAgain(ended, c, spec) {
			t.forGood++
		}
		if cs.State.Terminated != nil && ended.ExitCode == 0 {
			t.succeeded++
		}
	case cs.State.Waiting != nil:
		t.waiting++
	default:
		t.unknown++
	}
}

// startsAgain reports whether a container that has ended is to be started again,
// by its own policy or because another has the whole pod start again.
func startsAgain(ended *v1.ContainerStateTerminated, c *v1.Container, spec *v1.PodSpec) bool {
	return ended.Reason == reason.RestartingAllContainers || podutil.ContainerShouldRestart(*c, *spec, ended.ExitCode)
}

// lastEnd is how a container that does not run has ended, or nil if it never
// ran.
func lastEnd(cs *v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case cs == nil || cs.State.Running != nil:
		return nil
	case cs.State.Terminated != nil:
		return cs.State.Terminated
	default:
		return cs.LastTerminationState.Terminated
	}
}

func stateOf(statuses []v1.ContainerStatus, name string) *v1.ContainerStatus {
	i := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &statuses[i]
}

// regularStarted reports whether a regular container has been made in the
// newest sandbox: whether the pod has been initialised in it.
func regularStarted(in *Input) bool {
	if in.Observed == nil || len(in.Observed.Sandboxes) == 0 {
		return false
	}
	newest := in.Observed.Sandboxes[0].GetId()
	return slices.ContainsFunc(in.Observed.Containers, func(c observed.ContainerStatus) bool {
		return c.SandboxID == newest && isRegular(in.Pod, c.Name)
	})
}

func isRegular(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool { return c.Name == name })
}

// setAddresses sets the addresses of the node and the pod. Of the pod's, the
// first of the node's family and the first of the other one are told, as
// upstream does. A pod on the host's network has the node's. One that has ended
// keeps those that it had, though its sandbox is gone.
func setAddresses(s *v1.PodStatus, in *Input) {
	for _, ip := range in.HostIPs[:min(len(in.HostIPs), 2)] {
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	if len(s.HostIPs) > 0 {
		s.HostIP = s.HostIPs[0].IP
	}
	var ips []string
	if in.Observed != nil {
		ips = in.Observed.IPs
	}
	if in.Pod.Spec.HostNetwork && len(ips) == 0 {
		ips = in.HostIPs
	}
	primaryIs6 := len(in.HostIPs) > 0 && is6(in.HostIPs[0])
	for _, want6 := range []bool{primaryIs6, !primaryIs6} {
		for _, ip := range ips {
			if a, err := netip.ParseAddr(ip); err == nil && is6(ip) == want6 {
				s.PodIPs = append(s.PodIPs, v1.PodIP{IP: a.String()})
				break
			}
		}
	}
	if len(s.PodIPs) == 0 && in.Ended {
		s.PodIPs = slices.Clone(in.Previous.PodIPs)
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}

func is6(ip string) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.Is6() && !a.Is4In6()
}

// maxMessage is how many bytes the termination messages of one pod may have
// together, as in upstream's kubelet.
const maxMessage = 12 * 1024

// normalize cuts times to the seconds that the API keeps, and messages to
// their share of what a pod may say.
func normalize(s *v1.PodStatus) {
	if s.StartTime != nil {
		*s.StartTime = s.StartTime.Rfc3339Copy()
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.LastTransitionTime = c.LastTransitionTime.Rfc3339Copy()
		c.LastProbeTime = c.LastProbeTime.Rfc3339Copy()
	}
	all := [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses}
	n := 0
	for _, statuses := range all {
		n += len(statuses)
	}
	for _, statuses := range all {
		for i := range statuses {
			normalizeState(&statuses[i].State, maxMessage/n)
			normalizeState(&statuses[i].LastTerminationState, maxMessage/n)
		}
	}
}

func normalizeState(s *v1.ContainerState, limit int) {
	if r := s.Running; r != nil {
		s.Running = &v1.ContainerStateRunning{StartedAt: r.StartedAt.Rfc3339Copy()}
	}
	if t := s.Terminated; t != nil {
		c := *t
		c.StartedAt, c.FinishedAt = t.StartedAt.Rfc3339Copy(), t.FinishedAt.Rfc3339Copy()
		c.Message = c.Message[:min(len(c.Message), limit)]
		s.Terminated = &c
	}
}
