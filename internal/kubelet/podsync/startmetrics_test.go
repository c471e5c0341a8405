package podsync

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// measured returns how often the named histogram has seen something, and the sum
// in seconds.
func measured(t *testing.T, from *prometheus.Registry, name string) (count uint64, sum float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			h := family.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0, 0
}

func TestStartDurations(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(after int) time.Time { return created.Add(time.Duration(after) * time.Second) }
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u1", CreationTimestamp: metav1.NewTime(created)},
		Spec:       v1.PodSpec{InitContainers: []v1.Container{{Name: "init"}}, Containers: []v1.Container{{Name: "a"}, {Name: "b"}}},
	}
	ran := observed.ContainerStatus{Name: "init", State: observed.Exited, StartedAt: at(12), FinishedAt: at(15)}
	a := observed.ContainerStatus{Name: "a", State: observed.Running, StartedAt: at(18)}
	b := observed.ContainerStatus{Name: "b", State: observed.Exited, StartedAt: at(19), FinishedAt: at(20)}
	all := &observed.Status{UID: "u1", Containers: []observed.ContainerStatus{b, a, ran}}

	registry := prometheus.NewRegistry()
	m := newStartMetrics(registry)
	m.saw(pod, &observed.Status{}, at(2))
	m.pulled("u1", at(4), at(9))
	m.pulled("u1", at(3), at(10))
	m.saw(pod, &observed.Status{Containers: []observed.ContainerStatus{a, ran}}, at(19))
	if n, _ := measured(t, registry, "kubelet_pod_start_total_duration_seconds"); n != 0 {
		t.Fatal("a pod was measured before all its containers had started")
	}
	m.saw(pod, all, at(20))
	m.saw(pod, all, at(99))
	for _, tt := range []struct {
		name, metric string
		want         float64
	}{
		{"since it was seen", "kubelet_pod_start_duration_seconds", 18},
		{"since its creation", "kubelet_pod_start_total_duration_seconds", 20},
		{"without pulls from 3 to 10 and the init container from 12 to 15", "kubelet_pod_start_sli_duration_seconds", 10},
	} {
		if n, got := measured(t, registry, tt.metric); n != 1 || got != tt.want {
			t.Errorf("%s: %d measured, %v seconds, want one of %v", tt.name, n, got, tt.want)
		}
	}

	registry = prometheus.NewRegistry()
	restarted := newStartMetrics(registry)
	restarted.saw(pod, all, at(60))
	restarted.pulled("unknown", at(1), at(2))
	if n, _ := measured(t, registry, "kubelet_pod_start_total_duration_seconds"); n != 0 {
		t.Error("a pod that ran before the agent was measured")
	}
	restarted.forget("u1")
	if left := len(restarted.mu.begun); left != 0 {
		t.Errorf("%d pods are remembered", left)
	}
}

func TestStartsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newStartMetrics(registry)
	own := false
	m.pod(&v1.Pod{}, nil)
	m.pod(&v1.Pod{Spec: v1.PodSpec{HostUsers: &own}}, errors.New("no network"))
	pod := &v1.Pod{Spec: v1.PodSpec{EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}}}
	m.container(pod, start{container: &v1.Container{Name: "init"}, init: true}, nil)
	m.container(pod, start{container: &v1.Container{Name: "debug"}}, nil)
	m.container(pod, start{container: &v1.Container{Name: "app"}}, &startError{wait: reason.Wait{Reason: reason.CreateContainerError}})
	m.container(pod, start{container: &v1.Container{Name: "app"}, until: time.Now()}, &startError{wait: reason.Wait{Reason: reason.CrashLoopBackOff}})
	want := `
# HELP kubelet_started_containers_errors_total Containers that did not start, by kind and by the reason that the API shows.
# TYPE kubelet_started_containers_errors_total counter
kubelet_started_containers_errors_total{code="CreateContainerError",container_type="container"} 1
# HELP kubelet_started_containers_total Containers that were to be started, by kind.
# TYPE kubelet_started_containers_total counter
kubelet_started_containers_total{container_type="container"} 1
kubelet_started_containers_total{container_type="ephemeral_container"} 1
kubelet_started_containers_total{container_type="init_container"} 1
# HELP kubelet_started_pods_errors_total Sandboxes of pods that did not start.
# TYPE kubelet_started_pods_errors_total counter
kubelet_started_pods_errors_total 1
# HELP kubelet_started_pods_total Sandboxes of pods that were to be started.
# TYPE kubelet_started_pods_total counter
kubelet_started_pods_total 2
# HELP kubelet_started_user_namespaced_pods_total Sandboxes of pods with users of their own that were to be started.
# TYPE kubelet_started_user_namespaced_pods_total counter
kubelet_started_user_namespaced_pods_total 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"kubelet_started_containers_errors_total", "kubelet_started_containers_total", "kubelet_started_pods_errors_total",
		"kubelet_started_pods_total", "kubelet_started_user_namespaced_pods_total"); err != nil {
		t.Error(err)
	}
}
