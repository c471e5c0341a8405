package manifesturl

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the URL's numbers.
type metrics struct {
	errors    *prometheus.GaugeVec
	documents prometheus.Gauge
	kept      prometheus.Gauge
	requests  *prometheus.CounterVec
	last      prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		errors: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_manifest_url_errors",
			Help: "Faults of the manifest URL now, by reason.",
		}, []string{"reason"}),
		documents: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_manifest_url_documents",
			Help: "Documents of the manifest URL that are in force.",
		}),
		kept: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_manifest_url_documents_kept",
			Help: "Documents in force that the last answer of the manifest URL did not have in good order.",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_manifest_url_requests_total",
			Help: "Requests to the manifest URL, by result: answered or failed.",
		}, []string{"result"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_manifest_url_last_answer_timestamp_seconds",
			Help: "When the manifest URL last answered well, in seconds since 1970; 0: not since the start.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.errors, m.documents, m.kept, m.requests, m.last)
	}
	return m
}

func (m *metrics) count(err error) {
	result := "answered"
	if err != nil {
		result = "failed"
	}
	m.requests.WithLabelValues(result).Inc()
}

func (m *metrics) good(at time.Time) { m.last.Set(float64(at.Unix())) }

func (m *metrics) observe(s Set) {
	m.errors.Reset()
	for _, f := range s.Faults {
		m.errors.WithLabelValues(string(f.Reason)).Inc()
	}
	m.documents.Set(float64(len(s.Documents)))
	m.kept.Set(float64(len(s.Kept)))
}
