package cri

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestOperation(t *testing.T) {
	for method, want := range map[string]string{
		"/runtime.v1.RuntimeService/Version":                  "version",
		"/runtime.v1.RuntimeService/RunPodSandbox":            "run_podsandbox",
		"/runtime.v1.RuntimeService/PodSandboxStatus":         "podsandbox_status",
		"/runtime.v1.RuntimeService/ListPodSandboxStats":      "list_podsandbox_stats",
		"/runtime.v1.RuntimeService/ExecSync":                 "exec_sync",
		"/runtime.v1.RuntimeService/UpdateContainerResources": "update_container",
		"/runtime.v1.ImageService/ImageFsInfo":                "image_fs_info",
		"/containerd.services.tasks.v1.Tasks/Delete":          "",
		"/runtime.v1.": "",
		"":             "",
	} {
		if got, ok := operation(method); got != want || ok != (want != "") {
			t.Errorf("operation(%q) = %q, %t, want %q", method, got, ok, want)
		}
	}
}

func TestOperationsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	conn, err := Dial(filepath.Join(t.TempDir(), "none.sock"), NewOperations(registry).Option())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := New(conn, Config{}).RunSandbox(t.Context(), &runtimeapi.PodSandboxConfig{}, "kata"); err == nil {
		t.Fatal("a runtime that is not there ran a sandbox")
	}
	want := `
# HELP kubelet_run_podsandbox_errors_total Sandboxes that did not start, by the handler of their RuntimeClass.
# TYPE kubelet_run_podsandbox_errors_total counter
kubelet_run_podsandbox_errors_total{runtime_handler="kata"} 1
# HELP kubelet_runtime_operations_errors_total What the container runtime was asked for and did not do, by operation.
# TYPE kubelet_runtime_operations_errors_total counter
kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} 1
# HELP kubelet_runtime_operations_total What the container runtime was asked for, by operation.
# TYPE kubelet_runtime_operations_total counter
kubelet_runtime_operations_total{operation_type="run_podsandbox"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_run_podsandbox_errors_total",
		"kubelet_runtime_operations_errors_total", "kubelet_runtime_operations_total"); err != nil {
		t.Error(err)
	}
}
