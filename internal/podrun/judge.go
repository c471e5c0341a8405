package podrun

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// A verdict is what a pod's status says of its end.
type verdict struct {
	decided bool // else the pod goes on
	ended   bool // by itself: nothing of it runs any more
	code    int
	message string
}

func (v verdict) err(pod *v1.Pod) error {
	if v.code == 0 {
		return nil
	}
	return failf(v.code, "pod %s: %s", name(pod), v.message)
}

// judge says how a pod ends, as soon as its status shows that.
func judge(pod *v1.Pod) verdict {
	switch pod.Status.Phase {
	case v1.PodSucceeded:
		return verdict{decided: true, ended: true}
	case v1.PodFailed:
		code, message := failed(pod)
		return verdict{decided: true, ended: true, code: code, message: message}
	default:
	}
	if c := condition(pod, v1.PodScheduled); c != nil && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable && !transient(pod, c.Message) {
		return verdict{decided: true, code: CodeRefused, message: "the node cannot take it: " + c.Message}
	}
	for _, c := range statuses(pod) {
		if code, message := stuck(c); code != 0 {
			return verdict{decided: true, code: code, message: fmt.Sprintf("container %s: %s", c.Name, message)}
		}
	}
	return verdict{}
}

// transient reports whether a pod that has no node waits for a claim that is
// about to be bound.
func transient(pod *v1.Pod, message string) bool {
	return strings.Contains(message, "unbound") && slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	})
}

// stuck returns why a container cannot start, or 0. A node tries again; whoever
// waits wants to know now.
func stuck(c v1.ContainerStatus) (code int, message string) {
	if t := c.State.Terminated; t != nil && notStarted(t) {
		return CodeStart, "could not be started: " + cmp.Or(t.Message, t.Reason)
	}
	w := c.State.Waiting
	if w == nil {
		return 0, ""
	}
	text := strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
	switch w.Reason {
	case reason.ErrImagePull, reason.ImagePullBackOff, reason.ErrImageNeverPull, reason.InvalidImageName, reason.ImageInspectError,
		reason.RegistryUnavailable, reason.SignatureValidationFailed:
		return CodeImage, fmt.Sprintf("image %s: %s", c.Image, text)
	case reason.CreateContainerConfigError, reason.CreateContainerError, reason.RunContainerError:
		return CodeStart, text
	case reason.CrashLoopBackOff:
		if t := c.LastTerminationState.Terminated; t != nil && notStarted(t) {
			return CodeStart, "could not be started: " + cmp.Or(t.Message, t.Reason)
		}
	}
	return 0, ""
}

// notStarted reports whether a container ended before its program began, as
// runtimes say it.
func notStarted(t *v1.ContainerStateTerminated) bool {
	return t.Reason == "StartError" || t.Reason == "ContainerCannotRun"
}

// failed returns the exit code of a pod in the phase Failed: that of the
// container that failed first, if one did.
func failed(pod *v1.Pod) (code int, message string) {
	why := strings.TrimSuffix(pod.Status.Reason+": "+pod.Status.Message, ": ")
	switch pod.Status.Reason {
	case "":
	case "DeadlineExceeded":
		return CodeTimeout, why
	default:
		return CodeRefused, why
	}
	first := firstFailure(pod)
	if first == nil {
		return CodeRefused, cmp.Or(why, "it failed and no container says why")
	}
	t := first.State.Terminated
	if notStarted(t) {
		return stuck(*first)
	}
	message = fmt.Sprintf("container %s ended with exit code %d", first.Name, t.ExitCode)
	if t.Reason != "" && t.Reason != reason.Error {
		message += ", " + t.Reason
	}
	if t.Message != "" {
		message += ": " + strings.TrimSpace(t.Message)
	}
	return int(t.ExitCode), message
}

// firstFailure returns the container that failed before the others. Sidecars do
// not count: their end decides nothing.
func firstFailure(pod *v1.Pod) *v1.ContainerStatus {
	var first *v1.ContainerStatus
	for _, c := range statuses(pod) {
		t := c.State.Terminated
		if t == nil || t.ExitCode == 0 || sidecar(pod, c.Name) {
			continue
		}
		if first == nil || t.FinishedAt.Time.Before(first.State.Terminated.FinishedAt.Time) {
			first = &c
		}
	}
	return first
}

func sidecar(pod *v1.Pod, container string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool {
		return c.Name == container && c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	})
}

// statuses returns those of all containers, in the order in which they start.
func statuses(pod *v1.Pod) []v1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

func condition(pod *v1.Pod, of v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == of {
			return c
		}
	}
	return nil
}

// describe returns an event as a line of progress, or "" for one that is not
// worth it.
func describe(e *v1.Event) string {
	switch {
	case e.Reason == reason.Pulling:
		return e.Message
	case e.Reason == reason.Failed: // the status says it, too
	case e.Type == v1.EventTypeWarning:
		return e.Reason + ": " + e.Message
	}
	return ""
}

// fatal returns an error for an event that only a change from outside could
// mend: all that the pod needs was made before it.
func fatal(e *v1.Event) error {
	if e.Type == v1.EventTypeWarning && e.Reason == reason.FailedMount && strings.Contains(e.Message, "not found") {
		return failf(CodeStart, "pod %s/%s: %s: %s", e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Reason, e.Message)
	}
	return nil
}
