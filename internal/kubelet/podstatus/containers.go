package podstatus

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

type group int

const (
	initContainers group = iota
	regularContainers
	ephemeralContainers
)

// What is said, in upstream's words, of a container that ran and that the
// runtime has nothing of any more.
const (
	lostExitCode       = 137
	lostWhileDeleted   = "The container could not be located when the pod was deleted.  The container used to be Running"
	lostWhenTerminated = "The container could not be located when the pod was terminated"
	lostInit           = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
)

func (g group) containers(pod *v1.Pod) []v1.Container {
	switch g {
	case initContainers:
		return pod.Spec.InitContainers
	case ephemeralContainers:
		var containers []v1.Container
		for _, c := range pod.Spec.EphemeralContainers {
			containers = append(containers, v1.Container(c.EphemeralContainerCommon))
		}
		return containers
	default:
		return pod.Spec.Containers
	}
}

func (g group) previous(s *v1.PodStatus) []v1.ContainerStatus {
	switch g {
	case initContainers:
		return s.InitContainerStatuses
	case ephemeralContainers:
		return s.EphemeralContainerStatuses
	default:
		return s.ContainerStatuses
	}
}

// containerStatuses returns the status of each container of a group.
func containerStatuses(in *Input, g group) []v1.ContainerStatus {
	containers := g.containers(in.Pod)
	if len(containers) == 0 {
		return nil
	}
	statuses := make([]v1.ContainerStatus, 0, len(containers))
	for i := range containers {
		c := containerInput{
			Input: in, spec: &containers[i], group: g,
			old: stateOf(g.previous(&in.Previous), containers[i].Name),
			ran: runs(in.Observed, containers[i].Name),
		}
		statuses = append(statuses, c.status())
	}
	if g != initContainers {
		slices.SortFunc(statuses, func(a, b v1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) })
	}
	return statuses
}

// runs returns the two newest runs of a container, newest first.
func runs(o *observed.Status, name string) []*observed.ContainerStatus {
	if o == nil {
		return nil
	}
	var found []*observed.ContainerStatus
	for i := range o.Containers {
		if o.Containers[i].Name == name && len(found) < 2 {
			found = append(found, &o.Containers[i])
		}
	}
	return found
}

// A containerInput is what one container's status is computed from.
type containerInput struct {
	*Input
	spec  *v1.Container
	group group
	old   *v1.ContainerStatus         // nil: none was told
	ran   []*observed.ContainerStatus // newest first, two at most
}

func (c *containerInput) status() v1.ContainerStatus {
	var s v1.ContainerStatus
	if len(c.ran) > 0 {
		s = c.fromRuntime()
	} else {
		s = c.withoutRuntime()
	}
	c.setWait(&s)
	c.setReady(&s)
	return s
}

// fromRuntime is the status of a container that the runtime has.
func (c *containerInput) fromRuntime() v1.ContainerStatus {
	run := c.ran[0]
	s := v1.ContainerStatus{
		Name:               c.spec.Name,
		RestartCount:       run.RestartCount,
		Image:              run.Image,
		ImageID:            run.ImageID,
		ContainerID:        c.Runtime + "://" + run.ID,
		State:              c.state(run),
		AllocatedResources: c.spec.Resources.Requests,
		Resources:          c.spec.Resources.DeepCopy(),
		VolumeMounts:       volumeMounts(c.spec, run.Mounts),
		StopSignal:         stopSignal(c, run),
		User:               user(run),
	}
	if c.Progress != nil && c.old != nil && c.old.ContainerID == s.ContainerID && c.old.Resources != nil {
		s.Resources = c.old.Resources.DeepCopy() // what it has while it is being resized
	}
	switch {
	case len(c.ran) > 1:
		s.LastTerminationState = c.state(c.ran[1])
	case c.old == nil:
	case c.old.ContainerID != s.ContainerID && c.old.State.Terminated != nil:
		s.LastTerminationState = c.old.State // of a run that was removed
	default:
		s.LastTerminationState = c.old.LastTerminationState
	}
	if run.State == observed.Unknown && c.old != nil && c.old.State.Running != nil {
		// It ran and does not any more: to say "waiting" would make pods that
		// run once run twice.
		s.State = lost(lostWhenTerminated)
		s.RestartCount = c.old.RestartCount + 1
	}
	return s
}

func (c *containerInput) state(run *observed.ContainerStatus) v1.ContainerState {
	switch run.State {
	case observed.Running:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(run.StartedAt)}}
	case observed.Exited:
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode:    run.ExitCode,
			Reason:      run.Reason,
			Message:     run.Message,
			StartedAt:   metav1.NewTime(run.StartedAt),
			FinishedAt:  metav1.NewTime(run.FinishedAt),
			ContainerID: c.Runtime + "://" + run.ID,
		}}
	default:
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	}
}

// withoutRuntime is the status of a container that the runtime has nothing of:
// not yet, or not any more.
func (c *containerInput) withoutRuntime() v1.ContainerStatus {
	if c.old != nil && c.old.State.Waiting == nil && c.group != ephemeralContainers && restartsAll(c.Input) {
		return c.reset()
	}
	if c.old != nil && c.old.State.Terminated != nil {
		return *c.old.DeepCopy()
	}
	first := reason.ContainerCreating
	if len(c.Pod.Spec.InitContainers) > 0 {
		first = reason.PodInitializing
	}
	s := v1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image,
		State:        v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: first}},
		VolumeMounts: volumeMounts(c.spec, nil),
	}
	if c.old != nil {
		s.RestartCount = c.old.RestartCount
		s.LastTerminationState = *c.old.LastTerminationState.DeepCopy()
	}
	switch {
	case c.group == initContainers && !podutil.IsRestartableInitContainer(c.spec) && regularMade(c.Input):
		s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason.Completed, Message: lostInit}}
	case c.old != nil && c.old.State.Running != nil && s.LastTerminationState.Terminated == nil:
		s.LastTerminationState = lost(lostWhileDeleted)
		if c.Pod.DeletionTimestamp == nil {
			s.RestartCount++ // it is started again
		}
	}
	return s
}

// regularMade reports whether the runtime has any regular container of the pod,
// which says that the init containers have done their work.
func regularMade(in *Input) bool {
	return in.Observed != nil && slices.ContainsFunc(in.Observed.Containers, func(c observed.ContainerStatus) bool {
		return c.State != observed.Unknown && isRegular(in.Pod, c.Name)
	})
}

func lost(message string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason: reason.ContainerStatusUnknown, Message: message, ExitCode: lostExitCode,
	}}
}

// setWait tells why a container that should run does not.
func (c *containerInput) setWait(s *v1.ContainerStatus) {
	wait, ok := c.Waits[c.spec.Name]
	if !ok || !c.shouldStart() {
		return
	}
	if s.State.Terminated != nil {
		s.LastTerminationState = s.State
	}
	s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: wait.Reason, Message: wait.Message}}
}

// shouldStart reports whether a container is to be started, now or later.
func (c *containerInput) shouldStart() bool {
	if c.Pod.DeletionTimestamp != nil || c.Ended {
		return false
	}
	if len(c.ran) == 0 {
		return true
	}
	run := c.ran[0]
	switch run.State {
	case observed.Running:
		return false
	case observed.Exited:
		if c.group == initContainers && run.ExitCode == 0 && !podutil.IsRestartableInitContainer(c.spec) {
			return false
		}
		return podutil.ContainerShouldRestart(*c.spec, c.Pod.Spec, run.ExitCode)
	default:
		return true
	}
}

// setReady sets Started and Ready. An init container is ready when it has
// succeeded; others are when they run and their probes say so. Before the first
// result, a container is what it was when it was told last, so that a restart
// of the agent takes nobody out of service.
func (c *containerInput) setReady(s *v1.ContainerStatus) {
	if c.group == initContainers && !podutil.IsRestartableInitContainer(c.spec) {
		s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		s.Started = new(s.State.Running != nil)
		return
	}
	if s.State.Running == nil {
		s.Started, s.Ready = new(false), false
		return
	}
	same := c.old != nil && c.old.ContainerID == s.ContainerID
	id := c.ran[0].ID
	started := c.spec.StartupProbe == nil || c.Probes == nil
	if !started {
		healthy, known := c.Probes.Startup(id)
		started = healthy || !known && same && c.old.Started != nil && *c.old.Started
	}
	ready := started && c.group != ephemeralContainers
	if ready && c.spec.ReadinessProbe != nil && c.Probes != nil {
		healthy, known := c.Probes.Readiness(id)
		ready = healthy || !known && same && c.old.Ready
	}
	s.Started, s.Ready = &started, ready
}

// volumeMounts tells of each mount whether it is read-only, and whether what is
// mounted below it is, too. The latter is the runtime's to say once it has the
// container; made are its mounts.
func volumeMounts(spec *v1.Container, made []*runtimeapi.Mount) []v1.VolumeMountStatus {
	var mounts []v1.VolumeMountStatus
	for _, m := range spec.VolumeMounts {
		s := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			is := func(got *runtimeapi.Mount) bool {
				return got.GetContainerPath() == m.MountPath && got.GetRecursiveReadOnly()
			}
			if m.RecursiveReadOnly != nil && (*m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled || slices.ContainsFunc(made, is)) {
				mode = v1.RecursiveReadOnlyEnabled // with Enabled the container would not start otherwise
			}
			s.RecursiveReadOnly = &mode
		}
		mounts = append(mounts, s)
	}
	return mounts
}

// stopSignal is the signal that asks the container to end, where the pod names
// one. API servers that do not know the field drop it, and every other mention
// of it: to send that would never end.
func stopSignal(c *containerInput, run *observed.ContainerStatus) *v1.Signal {
	if c.spec.Lifecycle == nil || c.spec.Lifecycle.StopSignal == nil || staticpod.IsStatic(c.Pod) {
		return nil
	}
	return podfiles.SignalName(run.StopSignal)
}

func user(run *observed.ContainerStatus) *v1.ContainerUser {
	linux := run.User.GetLinux()
	if linux == nil {
		return nil
	}
	return &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
		UID: linux.GetUid(), GID: linux.GetGid(), SupplementalGroups: linux.GetSupplementalGroups(),
	}}
}
