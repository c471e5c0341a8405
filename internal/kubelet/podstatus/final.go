package podstatus

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// final returns the last status of a pod of which nothing runs or will run
// again: a container of which it is not known how it ended has failed, and the
// phase is one of the two last ones, but for a static pod, which may come back.
// It is what the upstream kubelet does when it terminates a pod.
func final(pod *v1.Pod, last *v1.PodStatus, now metav1.Time) v1.PodStatus {
	s := *last.DeepCopy()
	if wasInitialized(pod, &s) {
		endAll(s.ContainerStatuses)
	}
	endAll(s.InitContainerStatuses[:triedInit(s.InitContainerStatuses)])
	if staticpod.IsStatic(pod) {
		return s
	}
	if !terminal(&s) {
		s.Phase = v1.PodFailed
	}
	unready(&s, now)
	return s
}

// unready makes a pod that has ended not ready, if it is told to be.
func unready(s *v1.PodStatus, now metav1.Time) {
	why := podCompleted
	if s.Phase == v1.PodFailed {
		why = podFailed
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if (c.Type == v1.PodReady || c.Type == v1.ContainersReady) && (c.Status == v1.ConditionTrue || c.Reason != why) {
			if c.Status != v1.ConditionFalse {
				c.LastTransitionTime = now
			}
			c.Status, c.Reason, c.Message = v1.ConditionFalse, why, ""
		}
	}
}

func endAll(statuses []v1.ContainerStatus) {
	for i := range statuses {
		if s := &statuses[i]; s.State.Terminated == nil {
			s.State, s.Ready, s.Started = lost(lostWhenTerminated), false, new(false)
		}
	}
}

// triedInit is how many init containers, from the first, have been started; at
// least one.
func triedInit(statuses []v1.ContainerStatus) int {
	for i := len(statuses) - 1; i > 0; i-- {
		if s := &statuses[i]; s.State.Waiting == nil || s.LastTerminationState.Terminated != nil {
			return i + 1
		}
	}
	return min(len(statuses), 1)
}

// wasInitialized reports whether regular containers may have run.
func wasInitialized(pod *v1.Pod, s *v1.PodStatus) bool {
	n := len(pod.Spec.InitContainers)
	if n == 0 {
		return true
	}
	for i := range s.ContainerStatuses {
		if c := &s.ContainerStatuses[i]; c.State.Waiting == nil || c.LastTerminationState.Terminated != nil {
			return true
		}
	}
	c := &pod.Spec.InitContainers[n-1]
	last := stateOf(s.InitContainerStatuses, c.Name)
	switch {
	case last == nil:
		return false
	case podutil.IsRestartableInitContainer(c):
		return last.State.Running != nil && last.Started != nil && *last.Started
	default:
		ended := lastEnd(last)
		return ended != nil && ended.ExitCode == 0
	}
}
