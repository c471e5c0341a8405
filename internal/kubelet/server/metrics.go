package server

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

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

// metrics count requests under upstream's names. Their label path is the first
// part of a path that is known, so that no client can make series.
type metrics struct {
	requests   *prometheus.CounterVec
	inflight   *prometheus.GaugeVec
	duration   *prometheus.HistogramVec
	webSockets *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	labels := []string{"method", "path", "server_type", "long_running"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "Requests to the kubelet's API since it began.",
		}, labels),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "Requests that the kubelet's API answers now.",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_http_requests_duration_seconds", Help: "How long an answer of the kubelet's API took.", Buckets: prometheus.DefBuckets,
		}, labels),
		webSockets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_websocket_streaming_requests_total", Help: "Sessions over WebSocket that were translated for the runtime.",
		}, []string{"subresource"}),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.inflight, m.duration, m.webSockets)
	}
	return m
}

// count counts the requests that handler answers.
func (m *metrics) count(server string, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := bucket(r.URL.Path)
		long := path == "exec" || path == "attach" || path == "debug" // upstream's list misspells portForward
		labels := []string{methodBucket(r.Method), path, server, strconv.FormatBool(long)}
		m.requests.WithLabelValues(labels...).Inc()
		inflight := m.inflight.WithLabelValues(labels...)
		inflight.Inc()
		defer inflight.Dec()
		began := time.Now()
		defer func() { m.duration.WithLabelValues(labels...).Observe(time.Since(began).Seconds()) }()
		handler.ServeHTTP(w, r)
	})
}

func methodBucket(method string) string {
	switch method {
	case http.MethodOptions, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodTrace, http.MethodConnect:
		return method
	default:
		return "other"
	}
}

// bucket returns the first part of a path that is known, with the second one of
// /metrics.
func bucket(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "metrics":
		second, _, _ := strings.Cut(rest, "/")
		switch second {
		case "cadvisor", "probes", "resource":
			return "metrics/" + second
		case "":
			return first
		default:
			return "other"
		}
	case "healthz", "pods", "stats", "run", "exec", "attach", "portForward", "containerLogs", "configz",
		"allocatedPods", "runningpods", "checkpoint", "logs", "debug", "flagz", "statusz":
		return first
	default:
		return "other"
	}
}

// checkMetrics count the results of health checks, for /metrics/slis.
type checkMetrics struct {
	mu       sync.Mutex // a check and DELETE do not meet
	gather   *prometheus.Registry
	last     *prometheus.GaugeVec
	outcomes *prometheus.CounterVec
}

func newCheckMetrics() *checkMetrics {
	c := &checkMetrics{
		gather: prometheus.NewRegistry(),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "1 if a health check was well when it was last asked, else 0.",
		}, []string{"name", "type"}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "Answers of health checks.",
		}, []string{"name", "type", "status"}),
	}
	c.gather.MustRegister(c.last, c.outcomes)
	return c
}

func (c *checkMetrics) observe(check string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, status := 1.0, "success"
	if err != nil {
		value, status = 0, "error"
	}
	c.last.WithLabelValues(check, "healthz").Set(value)
	c.outcomes.WithLabelValues(check, "healthz", status).Inc()
}

// serveCheckMetrics answers /metrics/slis. DELETE begins anew.
func (s *Server) serveCheckMetrics(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		s.checks.mu.Lock()
		s.checks.last.Reset()
		s.checks.outcomes.Reset()
		s.checks.mu.Unlock()
		fmt.Fprint(w, "metrics reset\n")
		return
	}
	serveMetrics(s.checks.gather)(w, r)
}
