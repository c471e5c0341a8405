package kubelet_test

import (
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
)

// TestStopAllStopsDeadSandboxes: a sandbox that died by itself still has its
// network until it is stopped.
func TestStopAllStopsDeadSandboxes(t *testing.T) {
	runtime := crifake.Start(t)
	socket := filepath.Join(t.TempDir(), "cri.sock")
	runtime.Listen(t, socket)
	made, err := runtimeapi.NewRuntimeServiceClient(runtime.Conn()).RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{
		Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1"},
			Labels: map[string]string{
				"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "u1",
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.KillSandbox(made.PodSandboxId); err != nil {
		t.Fatal(err)
	}
	if err := kubelet.StopAll(t.Context(), "unix://"+socket, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if calls := runtime.Calls("StopPodSandbox"); len(calls) != 1 {
		t.Errorf("the dead sandbox was stopped %d times, want once: %v", len(calls), calls)
	}
}
