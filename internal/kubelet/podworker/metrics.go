package podworker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
)

// metrics have upstream's names for upstream's facts.
type metrics struct {
	steps      *prometheus.HistogramVec
	waits      prometheus.Histogram
	containers prometheus.Histogram
}

// newMetrics registers the metrics with to, if that is not nil.
func newMetrics(to prometheus.Registerer) *metrics {
	m := &metrics{
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_duration_seconds", Help: "How long one step of a pod's worker took: its first one (create), later ones (sync), and those that end it (kill).",
			Buckets: prometheus.DefBuckets,
		}, []string{"operation_type"}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_start_duration_seconds", Help: "Time from when a pod was first seen until its worker began.",
			Buckets: prometheus.DefBuckets,
		}),
		containers: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_containers_per_pod_count", Help: "Containers of the pods that were begun.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 5),
		}),
	}
	if to != nil {
		to.MustRegister(m.steps, m.waits, m.containers)
	}
	return m
}

// begun counts a worker's first step.
func (m *metrics) begun(j *job, asked time.Time) {
	m.waits.Observe(time.Since(asked).Seconds())
	if j.pod != nil {
		m.containers.Observe(float64(len(j.pod.Spec.Containers)))
	}
}

// stepped counts a step that began then.
func (m *metrics) stepped(j *job, then time.Time) {
	kind := "sync"
	switch {
	case j.state >= lifecycle.Terminating:
		kind = "kill"
	case j.first:
		kind = "create"
	}
	m.steps.WithLabelValues(kind).Observe(time.Since(then).Seconds())
}
