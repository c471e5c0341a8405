package podstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// Reasons of conditions, upstream's.
const (
	unknownContainerStatuses = "UnknownContainerStatuses"
	podCompleted             = "PodCompleted"
	podFailed                = "PodFailed"
	containersNotReady       = "ContainersNotReady"
	containersNotInitialized = "ContainersNotInitialized"
	readinessGatesNotReady   = "ReadinessGatesNotReady"
	podSandboxNotReady       = "PodSandboxNotReady"
)

// ours are the conditions that the kubelet alone writes, in upstream's order.
var ours = []v1.PodConditionType{
	v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled,
	v1.AllContainersRestarting, v1.PodResizePending, v1.PodResizeInProgress,
}

// conditions returns others' conditions as they are, then ours.
func conditions(s *v1.PodStatus, in *Input) []v1.PodCondition {
	var all []v1.PodCondition
	for _, c := range in.Others {
		if !slices.Contains(ours, c.Type) {
			all = append(all, c)
		}
	}
	containers := containersReady(s, in)
	made := []v1.PodCondition{
		readyToStart(in), initialized(s, in), ready(in, containers, all), containers,
		{Type: v1.PodScheduled, Status: v1.ConditionTrue},
	}
	made = append(made, restarting(s, in)...)
	made = append(made, resizes(s, in)...)
	if in.End != nil && in.End.Disrupted {
		all = slices.DeleteFunc(all, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
		made = append(made, in.End.condition())
	}
	for i := range made {
		c := &made[i]
		c.ObservedGeneration = cmp.Or(c.ObservedGeneration, in.Pod.Generation)
		c.LastTransitionTime = metav1.NewTime(in.Now)
		if _, old := podutil.GetPodCondition(&in.Previous, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return append(all, made...)
}

// resizes tells of a resize that waits and of one that is being done. A pod
// that has ended has neither.
func resizes(s *v1.PodStatus, in *Input) []v1.PodCondition {
	if terminal(s) {
		return nil
	}
	var made []v1.PodCondition
	if p := in.Pending; p != nil {
		made = append(made, v1.PodCondition{
			Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: p.Reason, Message: p.Message, ObservedGeneration: p.Generation,
		})
	}
	if p := in.Progress; p != nil {
		c := v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue, ObservedGeneration: p.Generation}
		if p.Error != "" {
			c.Reason, c.Message = v1.PodReasonError, p.Error
		}
		made = append(made, c)
	}
	return made
}

// readyToStart tells whether the pod has the one sandbox that it should have.
func readyToStart(in *Input) v1.PodCondition {
	if message := sandboxFault(in.Pod, in.Observed); message != "" {
		return v1.PodCondition{
			Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse,
			Reason: podSandboxNotReady, Message: message,
		}
	}
	return v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionTrue}
}

// sandboxFault says in upstream's words why a pod needs a new sandbox.
func sandboxFault(pod *v1.Pod, o *observed.Status) string {
	if o == nil || len(o.Sandboxes) == 0 {
		return "no pod sandbox exists"
	}
	ready := 0
	for _, s := range o.Sandboxes {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	newest := o.Sandboxes[0]
	onHost := newest.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	switch {
	case ready > 1:
		return "multiple pod sandboxes are ready and need to be reconciled"
	case newest.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY:
		return "pod sandbox is not ready"
	case onHost != pod.Spec.HostNetwork:
		return "network namespace mode changed and sandbox needs to be recreated"
	case !pod.Spec.HostNetwork && newest.GetNetwork() != nil && newest.GetNetwork().GetIp() == "":
		return "pod sandbox has no IP address"
	}
	return ""
}

// initialized tells whether all init containers have done their work, or did
// once: a sidecar that restarts does not make a pod uninitialised.
func initialized(s *v1.PodStatus, in *Input) v1.PodCondition {
	yes := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	no := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionFalse, Reason: containersNotInitialized}
	var unknown, incomplete []string
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		cs := stateOf(s.InitContainerStatuses, c.Name)
		switch {
		case cs == nil:
			unknown = append(unknown, c.Name)
		case podutil.IsRestartableInitContainer(c) && (cs.Started == nil || !*cs.Started),
			!podutil.IsRestartableInitContainer(c) && !cs.Ready:
			incomplete = append(incomplete, c.Name)
		}
	}
	if s.Phase == v1.PodSucceeded && len(unknown) == 0 {
		yes.Reason = podCompleted
		return yes
	}
	for _, cs := range s.ContainerStatuses {
		if cs.State.Running != nil || cs.State.Terminated != nil {
			return yes
		}
	}
	if podutil.AllContainersCouldRestart(&in.Pod.Spec) && isTrue(&in.Previous, v1.PodInitialized) {
		return yes // once and for all, also where the init containers run again
	}
	if no.Message = containersMessage(unknown, "incomplete", incomplete); no.Message != "" {
		return no
	}
	return yes
}

// containersReady tells whether all sidecars and regular containers are ready.
func containersReady(s *v1.PodStatus, in *Input) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	if s.ContainerStatuses == nil {
		c.Reason = unknownContainerStatuses
		return c
	}
	var unknown, unready []string
	look := func(statuses []v1.ContainerStatus, name string) {
		switch cs := stateOf(statuses, name); {
		case cs == nil:
			unknown = append(unknown, name)
		case !cs.Ready:
			unready = append(unready, name)
		}
	}
	for i := range in.Pod.Spec.InitContainers {
		if ic := &in.Pod.Spec.InitContainers[i]; podutil.IsRestartableInitContainer(ic) {
			look(s.InitContainerStatuses, ic.Name)
		}
	}
	for i := range in.Pod.Spec.Containers {
		look(s.ContainerStatuses, in.Pod.Spec.Containers[i].Name)
	}
	switch {
	case s.Phase == v1.PodSucceeded && len(unknown) == 0:
		c.Reason = podCompleted
	case s.Phase == v1.PodFailed:
		c.Reason = podFailed
	case len(unknown)+len(unready) > 0:
		c.Reason, c.Message = containersNotReady, containersMessage(unknown, "unready", unready)
	default:
		c.Status = v1.ConditionTrue
	}
	return c
}

// ready tells whether the pod serves: its containers and its readiness gates.
func ready(in *Input, containers v1.PodCondition, others []v1.PodCondition) v1.PodCondition {
	c := containers
	c.Type = v1.PodReady
	if c.Status != v1.ConditionTrue {
		return c
	}
	var messages []string
	for _, gate := range in.Pod.Spec.ReadinessGates {
		switch _, have := podutil.GetPodConditionFromList(others, gate.ConditionType); {
		case have == nil:
			messages = append(messages, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case have.Status != v1.ConditionTrue:
			messages = append(messages, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, have.Status))
		}
	}
	if len(messages) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, readinessGatesNotReady, strings.Join(messages, ", ")
	}
	return c
}

func containersMessage(unknown []string, word string, others []string) string {
	var parts []string
	if len(unknown) > 0 {
		parts = append(parts, fmt.Sprintf("containers with unknown status: %s", unknown))
	}
	if len(others) > 0 {
		parts = append(parts, fmt.Sprintf("containers with %s status: %s", word, others))
	}
	return strings.Join(parts, ", ")
}
