package devices

import "github.com/prometheus/client_golang/prometheus"

// metrics are upstream's.
type metrics struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	m := &metrics{
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_device_plugin_registration_total",
			Help: "Cumulative number of device plugin registrations. Broken down by resource name.",
		}, []string{"resource_name"}),
		allocations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_device_plugin_alloc_duration_seconds",
			Help:    "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
			Buckets: prometheus.DefBuckets,
		}, []string{"resource_name"}),
	}
	registerer.MustRegister(m.registrations, m.allocations)
	return m
}
