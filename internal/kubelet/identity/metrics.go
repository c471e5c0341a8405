package identity

import (
	"crypto/tls"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// keeperMetrics are those of one certificate. The zero value counts nothing.
type keeperMetrics struct {
	registry prometheus.Registerer
	ttl      string               // name of what tells the rest of its life
	errors   prometheus.Counter   // tries that failed
	lived    prometheus.Histogram // seconds for which the one before was good
}

// Upstream's names. Those of the client and the server are not alike there either.
func clientMetrics(r prometheus.Registerer) keeperMetrics {
	return registered(keeperMetrics{
		registry: r, ttl: "kubelet_certificate_manager_client_ttl_seconds",
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_certificate_manager_client_expiration_renew_errors", Help: "Times a new client certificate could not be had.",
		}),
	})
}

func serverMetrics(r prometheus.Registerer) keeperMetrics {
	return registered(keeperMetrics{
		registry: r, ttl: "kubelet_certificate_manager_server_ttl_seconds",
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_server_expiration_renew_errors", Help: "Times a new serving certificate could not be had.",
		}),
		lived: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_certificate_manager_server_rotation_seconds", Help: "Seconds from the start of a serving certificate's life to the next one's.",
			Buckets: []float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000},
		}),
	})
}

func registered(m keeperMetrics) keeperMetrics {
	m.registry.MustRegister(m.errors)
	if m.lived != nil {
		m.registry.MustRegister(m.lived)
	}
	return m
}

// observe shows how long the certificate of a keeper is good.
func (m keeperMetrics) observe(k *keeper) {
	if m.registry == nil {
		return
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: m.ttl, Help: "Seconds until the certificate expires; negative since it has; +Inf without one.",
	}, func() float64 {
		c := k.get()
		if c == nil {
			return math.Inf(1)
		}
		return math.Trunc(time.Until(c.Leaf.NotAfter).Seconds())
	}))
}

func (m keeperMetrics) failed() {
	if m.errors != nil {
		m.errors.Inc()
	}
}

func (m keeperMetrics) renewed(before *tls.Certificate) {
	if m.lived != nil && before != nil {
		m.lived.Observe(time.Since(before.Leaf.NotBefore).Seconds())
	}
}
