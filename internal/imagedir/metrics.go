package imagedir

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// metrics are the folder's numbers.
type metrics struct {
	errors   *prometheus.GaugeVec
	imported prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		errors: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_image_archive_errors",
			Help: "Faults of image archives now, by file.",
		}, []string{"file"}),
		imported: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_image_archives",
			Help: "Image archives in the folder whose images are on the runtime.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.errors, m.imported)
	}
	return m
}

func (m *metrics) observe(imported int, faults []manifest.Fault) {
	m.errors.Reset()
	for _, f := range faults {
		m.errors.WithLabelValues(f.File).Inc()
	}
	m.imported.Set(float64(imported))
}
