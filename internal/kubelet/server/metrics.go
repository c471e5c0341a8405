package server

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// serveMetrics answers /metrics with what the kubelet's parts registered.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{
		// One broken collector must not hide all other values.
		ErrorHandling: promhttp.ContinueOnError,
	}).ServeHTTP(w, r)
}
