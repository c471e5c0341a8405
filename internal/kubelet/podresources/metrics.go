package podresources

import "github.com/prometheus/client_golang/prometheus"

// metrics are upstream's, by the version of the API. It counts errors of Get alone
// where it has any: List and GetAllocatableResources do not fail.
type metrics struct {
	total, list, allocatable, get, getErrors *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_pod_resources_endpoint_" + name, Help: help}, []string{"server_api_version"})
		registerer.MustRegister(c)
		return c
	}
	return &metrics{
		total:       counter("requests_total", "Cumulative number of requests for pod resources by server API version"),
		list:        counter("requests_list", "Number of List requests for pod resources by server API version"),
		allocatable: counter("requests_get_allocatable", "Number of GetAllocatableResources requests for pod resources by server API version"),
		get:         counter("requests_get", "Number of Get requests for pod resources by server API version"),
		getErrors:   counter("errors_get", "Number of Get requests for pod resources that returned an error by server API version"),
	}
}

// count counts one request of a kind.
func (m *metrics) count(version string, kind *prometheus.CounterVec) {
	m.total.WithLabelValues(version).Inc()
	kind.WithLabelValues(version).Inc()
}
