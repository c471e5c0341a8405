package server

import (
	"context"
	"net/http"
)

// serveSummary answers /stats/summary: what the node and its pods use. Upstream's
// kubelet takes only_cpu_and_memory for meant if it is exactly "true".
func (s *Server) serveSummary(w http.ResponseWriter, r *http.Request) {
	small := r.URL.Query().Get("only_cpu_and_memory") == "true"
	s.serveFigures(w, r, "application/json", func(ctx context.Context) ([]byte, error) {
		return s.cfg.Stats.SummaryJSON(ctx, small)
	})
}

// prometheusText is the type of Prometheus' text format.
const prometheusText = "text/plain; version=0.0.4; charset=utf-8"

// serveResourceMetrics answers /metrics/resource.
func (s *Server) serveResourceMetrics(w http.ResponseWriter, r *http.Request) {
	s.serveFigures(w, r, prometheusText, s.cfg.Stats.ResourceMetrics)
}

// serveCadvisorMetrics answers /metrics/cadvisor.
func (s *Server) serveCadvisorMetrics(w http.ResponseWriter, r *http.Request) {
	s.serveFigures(w, r, prometheusText, s.cfg.Stats.CadvisorMetrics)
}

func (s *Server) serveFigures(w http.ResponseWriter, r *http.Request, contentType string, get func(context.Context) ([]byte, error)) {
	data, err := get(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	if _, err := w.Write(data); err != nil {
		s.log.Debug("Answer was not written", "err", err)
	}
}
