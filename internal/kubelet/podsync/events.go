package podsync

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// What events of one pod say, in upstream's words.
const (
	networkNotReadyText  = "network is not ready: %v"
	sandboxChangedText   = "Pod sandbox changed, it will be killed and re-created."
	failedSandboxText    = "Failed to create pod sandbox: %v"
	failedInspectionText = "Unable to get pod sandbox status: %v"
)

// events writes events about pods and their containers.
type events struct {
	recorder record.EventRecorder
}

func (e events) normal(pod *v1.Pod, why, format string, args ...any) {
	e.recorder.Eventf(pod, v1.EventTypeNormal, why, format, args...)
}

func (e events) warn(pod *v1.Pod, why, format string, args ...any) {
	e.recorder.Eventf(pod, v1.EventTypeWarning, why, format, args...)
}

func (e events) warnings(pod *v1.Pod, list []podfiles.Warning) {
	for _, w := range list {
		e.recorder.Event(pod, v1.EventTypeWarning, w.Reason, w.Message)
	}
}

func (e events) container(pod *v1.Pod, name, kind, why, message string) {
	e.recorder.Event(containerRef(pod, name), kind, why, message)
}

// containerRef refers to a pod with the container's place in it, by which
// events are told apart.
func containerRef(pod *v1.Pod, name string) *v1.ObjectReference {
	return &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1",
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		FieldPath: fieldPath(pod, name),
	}
}

func fieldPath(pod *v1.Pod, name string) string {
	if name == "" { // an image that a volume is made of
		return ""
	}
	list := "ephemeralContainers"
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			list = "initContainers"
		}
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			list = "containers"
		}
	}
	return fmt.Sprintf("spec.%s{%s}", list, name)
}

// describe names a pod in messages as upstream does.
func describe(pod *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}
