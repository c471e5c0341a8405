package manifestdir

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the folder's numbers.
type metrics struct {
	errors    *prometheus.GaugeVec
	documents prometheus.Gauge
	kept      prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		errors: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_manifest_errors",
			Help: "Faults in the manifest folder now, by file and reason.",
		}, []string{"file", "reason"}),
		documents: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_manifest_documents",
			Help: "Documents of the manifest folder that are in force.",
		}),
		kept: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_manifest_documents_kept",
			Help: "Documents in force whose file is broken or cannot be read.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.errors, m.documents, m.kept)
	}
	return m
}

func (m *metrics) observe(s Set) {
	m.errors.Reset()
	for _, f := range s.Faults {
		m.errors.WithLabelValues(f.File, string(f.Reason)).Inc()
	}
	m.documents.Set(float64(len(s.Documents)))
	m.kept.Set(float64(len(s.Kept)))
}
