package podworker

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
)

func TestStepsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newMetrics(registry)
	first := &job{state: lifecycle.Syncing, first: true, pod: &v1.Pod{Spec: v1.PodSpec{Containers: make([]v1.Container, 3)}}}
	m.begun(first, time.Now())
	m.begun(&job{state: lifecycle.Terminating, first: true}, time.Now()) // an orphan
	for _, j := range []*job{first, {state: lifecycle.Syncing}, {state: lifecycle.Terminating}, {state: lifecycle.Terminated}} {
		m.stepped(j, time.Now())
	}
	if n, err := testutil.GatherAndCount(registry, "kubelet_pod_worker_duration_seconds"); n != 3 || err != nil {
		t.Errorf("%d series of steps, %v, want create, sync and kill", n, err)
	}
	want := `
# HELP kubelet_containers_per_pod_count Containers of the pods that were begun.
# TYPE kubelet_containers_per_pod_count histogram
kubelet_containers_per_pod_count_bucket{le="1"} 0
kubelet_containers_per_pod_count_bucket{le="2"} 0
kubelet_containers_per_pod_count_bucket{le="4"} 1
kubelet_containers_per_pod_count_bucket{le="8"} 1
kubelet_containers_per_pod_count_bucket{le="16"} 1
kubelet_containers_per_pod_count_bucket{le="+Inf"} 1
kubelet_containers_per_pod_count_sum 3
kubelet_containers_per_pod_count_count 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_containers_per_pod_count"); err != nil {
		t.Error(err)
	}
}
