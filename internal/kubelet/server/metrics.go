package server

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// serveMetrics answers with what the kubelet's parts registered: /metrics with
// most of it, /metrics/probes with what has a series for each probe of a pod.
func serveMetrics(from prometheus.Gatherer) http.HandlerFunc {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{
		// One broken collector must not hide all other values.
		ErrorHandling: promhttp.ContinueOnError,
	}).ServeHTTP
}
