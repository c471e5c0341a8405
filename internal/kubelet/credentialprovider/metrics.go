package credentialprovider

import "github.com/prometheus/client_golang/prometheus"

// metrics are upstream's.
type metrics struct {
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newMetrics registers the metrics with to, if that is not nil. hash is of the
// configuration.
func newMetrics(to prometheus.Registerer, hash string) metrics {
	m := metrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_credential_provider_plugin_errors_total",
			Help: "Runs of image credential provider plugins that failed.",
		}, []string{"plugin_name"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_credential_provider_plugin_duration",
			Help: "Seconds that image credential provider plugins ran.",
		}, []string{"plugin_name"}),
	}
	if to != nil {
		info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_credential_provider_config_info",
			Help: "The configuration of image credential provider plugins that is in force, by its hash.",
		}, []string{"hash"})
		info.WithLabelValues(hash).Set(1)
		to.MustRegister(m.errors, m.duration, info)
	}
	return m
}
