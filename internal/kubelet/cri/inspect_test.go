package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// TestStartCutOff tells a container that never ran, as the agent died while it
// started it, from others that have ended.
func TestStartCutOff(t *testing.T) {
	const cut = "failed to create containerd task: failed to create shim task: context canceled"
	for _, test := range []struct {
		name   string
		status *runtimeapi.ContainerStatus
		want   observed.State
	}{
		{"cut off", &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED, Reason: "StartError", ExitCode: 128, Message: cut}, observed.Created},
		{"no such program", &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED, Reason: "StartError", ExitCode: 128, Message: "exec: \"sh\": executable file not found in $PATH"}, observed.Exited},
		{"it ran", &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED, StartedAt: 1, Message: cut}, observed.Exited},
		{"it runs", &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING, Message: cut}, observed.Running},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := inspectedState(test.status); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
