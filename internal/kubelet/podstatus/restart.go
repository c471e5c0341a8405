package podstatus

import (
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// What upstream says of a pod whose containers all start again because one of
// them ended as its rules have it.
const (
	restartingReason  = "RestartAllContainersStarted"
	restartingMessage = "container exited with restart policy rule"
	resetMessage      = "The container is removed because RestartAllContainers in place"
)

// restartsAll reports whether the pod is on its way to start again from the
// beginning: it was told before, or a container has ended that way.
func restartsAll(in *Input) bool {
	if !podutil.AllContainersCouldRestart(&in.Pod.Spec) {
		return false
	}
	if isTrue(&in.Previous, v1.AllContainersRestarting) {
		return true
	}
	for _, c := range podfiles.Containers(in.Pod) {
		if last := in.Observed.Container(c.Name); last != nil && last.State == observed.Exited && podfiles.RestartsAll(c, last.ExitCode) {
			return true
		}
	}
	return false
}

// restarting tells whether the containers are being taken away so that all
// start again. A pod that has no rule for it has no such condition.
func restarting(s *v1.PodStatus, in *Input) []v1.PodCondition {
	if !podutil.AllContainersCouldRestart(&in.Pod.Spec) {
		return nil
	}
	c := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	switch {
	case s.Phase == v1.PodSucceeded:
		c.Reason = podCompleted
	case s.Phase == v1.PodFailed:
		c.Reason = podFailed
	case restartsAll(in) && !cleanedUp(in):
		c.Status, c.Reason, c.Message = v1.ConditionTrue, restartingReason, restartingMessage
	}
	return []v1.PodCondition{c}
}

// cleanedUp reports whether the runtime has none of the pod's containers.
func cleanedUp(in *Input) bool {
	for _, c := range podfiles.Containers(in.Pod) {
		if in.Observed.Container(c.Name) != nil {
			return false
		}
	}
	return true
}

// reset is the status of a container that was taken away so that it starts
// again with all others.
func (c *containerInput) reset() v1.ContainerStatus {
	return v1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, VolumeMounts: volumeMounts(c.spec, nil),
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason.RestartingAllContainers, Message: resetMessage}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason: reason.RestartingAllContainers, Message: resetMessage, ExitCode: lostExitCode,
		}},
		RestartCount: c.old.RestartCount + 1,
	}
}

func isTrue(s *v1.PodStatus, kind v1.PodConditionType) bool {
	_, c := podutil.GetPodCondition(s, kind)
	return c != nil && c.Status == v1.ConditionTrue
}
