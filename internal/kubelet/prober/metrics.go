package prober

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts what probes found, under the upstream kubelet's names.
type metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total",
			Help: "Probes of containers, by what they are for and how they ended.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prober_probe_duration_seconds",
			Help: "How long probes took that did not fail, in seconds.",
		}, []string{"probe_type", "container", "pod", "namespace"}),
	}
	if registerer != nil {
		registerer.MustRegister(m.total, m.duration)
	}
	return m
}

func (m *metrics) observe(w *worker, ok bool, err error, took time.Duration) {
	result := "successful"
	switch {
	case err != nil:
		result = "unknown"
	case !ok:
		result = "failed"
	}
	labels := w.labels()
	if result != "failed" { // as upstream: a failure's time is mostly its timeout
		m.duration.With(labels).Observe(took.Seconds())
	}
	labels["result"], labels["pod_uid"] = result, string(w.key.uid)
	m.total.With(labels).Inc()
}

// forget drops the series of a probe that has ended.
func (m *metrics) forget(w *worker) {
	labels := w.labels()
	m.duration.DeletePartialMatch(labels)
	labels["pod_uid"] = string(w.key.uid)
	m.total.DeletePartialMatch(labels)
}

func (w *worker) labels() prometheus.Labels {
	return prometheus.Labels{
		"probe_type": string(w.key.kind), "container": w.key.container,
		"pod": w.pod.Name, "namespace": w.pod.Namespace,
	}
}
