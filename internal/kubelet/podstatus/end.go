package podstatus

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// An End is why the node ends a pod before its time.
type End struct {
	Reason, Message string // of the pod's status; its phase is Failed
	Disrupted       bool   // the condition DisruptionTarget says so, too: it was for the node's sake, not the pod's fault
}

func (e *End) condition() v1.PodCondition {
	message := e.Message
	if e.Reason == reason.Preempting { // upstream says it in two ways
		message = "Pod was preempted by Kubelet to accommodate a critical pod."
	}
	return v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue,
		Reason: v1.PodReasonTerminationByKubelet, Message: message,
	}
}

// apply has a pod fail for e's reason, unless its containers have all succeeded
// or its deadline is over.
func (e *End) apply(s *v1.PodStatus) {
	if e != nil && s.Phase != v1.PodSucceeded && s.Reason == "" {
		s.Phase, s.Reason, s.Message = v1.PodFailed, e.Reason, e.Message
	}
}

// told reports whether a last phase is e's: one that was set before the
// containers had ended, so that it does not stay if they succeed.
func (e *End) told(s *v1.PodStatus) bool {
	return e != nil && s.Phase == v1.PodFailed && s.Reason == e.Reason && s.Message == e.Message
}

// End makes a pod Failed for a reason that its containers do not show; as
// upstream has it, one whose containers then all succeed is Succeeded. Call it
// before its worker is asked to kill the pod: the API gets the phase, and with
// disrupted the condition DisruptionTarget, when nothing of the pod runs any
// more. A pod that has ended stays as it did, and the first reason stays.
func (m *Manager) End(uid types.UID, reason, message string, disrupted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entryLocked(uid); e.end == nil || e.finished {
		e.end = &End{Reason: reason, Message: message, Disrupted: disrupted}
	}
}

// withDisruption makes the kubelet's own condition DisruptionTarget what status
// says of it, once that is to be told. Another's stays unless ours takes its place.
func withDisruption(conditions []v1.PodCondition, status *v1.PodStatus, tell bool) []v1.PodCondition {
	i := slices.IndexFunc(status.Conditions, isOwnDisruption)
	switch {
	case i >= 0 && tell:
		conditions = slices.DeleteFunc(conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
		return append(conditions, status.Conditions[i])
	case !terminal(status):
		return slices.DeleteFunc(conditions, isOwnDisruption) // of an earlier life of a static pod
	}
	return conditions
}

func isOwnDisruption(c v1.PodCondition) bool {
	return c.Type == v1.DisruptionTarget && c.Reason == v1.PodReasonTerminationByKubelet
}

// rejectedText begins the message of a pod that was not admitted, as upstream's.
const rejectedText = "Pod was rejected: "

// endedByNode reports whether a pod is Failed because its node ended it, or did
// not admit it.
func endedByNode(s *v1.PodStatus) bool {
	return s.Phase == v1.PodFailed && (s.Reason == reason.Evicted || strings.HasPrefix(s.Message, rejectedText) ||
		slices.ContainsFunc(s.Conditions, isOwnDisruption))
}
