package eviction

import "github.com/prometheus/client_golang/prometheus"

// metrics are upstream's about evictions.
type metrics struct {
	evictions *prometheus.CounterVec
	age       *prometheus.HistogramVec
}

func newMetrics() metrics {
	return metrics{
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_evictions", Help: "Pods that were evicted, by the signal because of which.",
		}, []string{"eviction_signal"}),
		age: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_eviction_stats_age_seconds", Buckets: prometheus.DefBuckets,
			Help: "How old the readings were by which a pod was evicted, by signal.",
		}, []string{"eviction_signal"}),
	}
}

func (m metrics) register(r prometheus.Registerer) { r.MustRegister(m.evictions, m.age) }
