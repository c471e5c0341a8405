package podmetrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podmetrics"
)

func pod(uid string, static bool, phase v1.PodPhase) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, UID: types.UID(uid)}, Status: v1.PodStatus{Phase: phase}}
	if static {
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	}
	return p
}

func TestCollector(t *testing.T) {
	web, db, ended, etcd := pod("web", false, v1.PodRunning), pod("db", false, v1.PodRunning), pod("ended", false, v1.PodSucceeded), pod("etcd", true, v1.PodRunning)
	web.Spec.EphemeralContainers = make([]v1.EphemeralContainer, 2)
	registry := prometheus.NewRegistry()
	registry.MustRegister(podmetrics.New(podmetrics.Config{
		Node: "n1",
		Pods: func() []*v1.Pod { return []*v1.Pod{web, db, ended, etcd} },
		Workers: func() []lifecycle.Info {
			return []lifecycle.Info{
				{UID: "web", State: lifecycle.Syncing, Pod: web},
				{UID: "db", State: lifecycle.Finished, Pod: db},
				{UID: "etcd", State: lifecycle.Waiting, Pod: etcd},
				{UID: "gone", State: lifecycle.Terminating, Removed: true, Pod: pod("gone", false, "")},
				{UID: "stray", State: lifecycle.Terminating},
			}
		},
	}))
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	got := answer.Body.String()
	for _, line := range []string{
		`kubelet_node_name{node="n1"} 1`,
		`kubelet_desired_pods{static=""} 3`,
		`kubelet_desired_pods{static="true"} 1`,
		`kubelet_active_pods{static=""} 1`,
		`kubelet_active_pods{static="true"} 1`,
		`kubelet_mirror_pods 1`,
		`kubelet_managed_ephemeral_containers 2`,
		`kubelet_working_pods{config="desired",lifecycle="sync",static=""} 1`,
		`kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 1`,
		`kubelet_working_pods{config="desired",lifecycle="terminated",static=""} 1`,
		`kubelet_working_pods{config="orphan",lifecycle="terminating",static=""} 1`,
		`kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"} 1`,
		`kubelet_working_pods{config="desired",lifecycle="terminating",static=""} 0`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %s in:\n%s", line, got)
		}
	}
}
