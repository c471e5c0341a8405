package podsync

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// startMetrics tell under upstream's names what was started, and how long pods
// took from their creation until all their containers had started. A pod that ran
// when it was first seen, as after a restart of the agent, is not measured.
type startMetrics struct {
	pods, podErrors             prometheus.Counter
	ownUsers, ownUsersErrors    prometheus.Counter
	containers, containerErrors *prometheus.CounterVec

	sinceSeen, total, sli prometheus.Histogram

	mu struct {
		sync.Mutex
		begun map[types.UID]*beginning
	}
}

// A beginning is what is known of a pod's start.
type beginning struct {
	seen            time.Time
	pulling, pulled time.Time // when its first pull began and its last one ended; zero: none
	over            bool      // all has started, or did when the pod was first seen
}

// newStartMetrics registers the metrics with to, if that is not nil.
func newStartMetrics(to prometheus.Registerer) *startMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help,
			Buckets: []float64{.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		})
	}
	m := &startMetrics{
		pods:           counter("kubelet_started_pods_total", "Sandboxes of pods that were to be started."),
		podErrors:      counter("kubelet_started_pods_errors_total", "Sandboxes of pods that did not start."),
		ownUsers:       counter("kubelet_started_user_namespaced_pods_total", "Sandboxes of pods with users of their own that were to be started."),
		ownUsersErrors: counter("kubelet_started_user_namespaced_pods_errors_total", "Sandboxes of pods with users of their own that did not start."),
		containers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_started_containers_total", Help: "Containers that were to be started, by kind.",
		}, []string{"container_type"}),
		containerErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_started_containers_errors_total", Help: "Containers that did not start, by kind and by the reason that the API shows.",
		}, []string{"container_type", "code"}),
		sinceSeen: histogram("kubelet_pod_start_duration_seconds", "Time from when the node first saw a pod until all its containers had started."),
		total:     histogram("kubelet_pod_start_total_duration_seconds", "Time from a pod's creation until all its containers had started."),
		sli:       histogram("kubelet_pod_start_sli_duration_seconds", "The same, without the time in which images were pulled and init containers ran."),
	}
	m.mu.begun = map[types.UID]*beginning{}
	if to != nil {
		to.MustRegister(m.pods, m.podErrors, m.ownUsers, m.ownUsersErrors, m.containers, m.containerErrors, m.sinceSeen, m.total, m.sli)
	}
	return m
}

// pod counts a sandbox that was to be started; err: it was not.
func (m *startMetrics) pod(pod *v1.Pod, err error) {
	own := podfiles.WantsUserIDs(pod)
	m.pods.Inc()
	if own {
		m.ownUsers.Inc()
	}
	if err == nil {
		return
	}
	m.podErrors.Inc()
	if own {
		m.ownUsersErrors.Inc()
	}
}

// container counts a container that was to be started; err: it was not. One that
// only waits for the end of a back-off is not counted.
func (m *startMetrics) container(pod *v1.Pod, st start, err error) {
	if !st.until.IsZero() {
		return
	}
	kind := "container"
	switch {
	case st.init:
		kind = "init_container"
	case slices.ContainsFunc(pod.Spec.EphemeralContainers, func(e v1.EphemeralContainer) bool { return e.Name == st.container.Name }):
		kind = "ephemeral_container"
	}
	m.containers.WithLabelValues(kind).Inc()
	if why := (*startError)(nil); errors.As(err, &why) {
		m.containerErrors.WithLabelValues(kind, why.wait.Reason).Inc()
	}
}

// pulled notes one pull for a pod.
func (m *startMetrics) pulled(uid types.UID, began, ended time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.mu.begun[uid]
	if b == nil || b.over {
		return
	}
	if b.pulling.IsZero() || began.Before(b.pulling) {
		b.pulling = began
	}
	if ended.After(b.pulled) {
		b.pulled = ended
	}
}

// saw looks at how far a pod is.
func (m *startMetrics) saw(pod *v1.Pod, status *observed.Status, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.mu.begun[pod.UID]
	if b == nil {
		b = &beginning{seen: now, over: len(status.Containers) > 0}
		m.mu.begun[pod.UID] = b
	}
	if b.over || !allStarted(pod, status) {
		return
	}
	b.over = true
	m.sinceSeen.Observe(now.Sub(b.seen).Seconds())
	created := pod.CreationTimestamp.Time
	if created.IsZero() {
		return
	}
	total := now.Sub(created)
	m.total.Observe(total.Seconds())
	sli := total - b.pulled.Sub(b.pulling) - initTime(pod, status)
	m.sli.Observe(max(sli, 0).Seconds())
}

func (m *startMetrics) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.begun, uid)
}

// allStarted reports whether every container of a pod, beside init containers,
// has started once.
func allStarted(pod *v1.Pod, status *observed.Status) bool {
	for i := range pod.Spec.Containers {
		if c := status.Container(pod.Spec.Containers[i].Name); c == nil || c.StartedAt.IsZero() {
			return false
		}
	}
	return true
}

// initTime is how long init containers ran that the others waited for.
func initTime(pod *v1.Pod, status *observed.Status) time.Duration {
	var all time.Duration
	for i := range pod.Spec.InitContainers {
		c := status.Container(pod.Spec.InitContainers[i].Name)
		if c != nil && !podfiles.IsSidecar(&pod.Spec.InitContainers[i]) && !c.StartedAt.IsZero() && c.FinishedAt.After(c.StartedAt) {
			all += c.FinishedAt.Sub(c.StartedAt)
		}
	}
	return all
}
