// Package restmetrics counts under upstream's names what clients of an API ask.
package restmetrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Requests are those of some clients. It may be used by many goroutines.
type Requests struct {
	total *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

// New registers the metrics with to.
func New(to prometheus.Registerer) *Requests {
	r := &Requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "Requests to the API, by the status of the answer, method and host.",
		}, []string{"code", "method", "host"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_request_duration_seconds", Help: "Time until the API began to answer, by method and host.",
			Buckets: []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60},
		}, []string{"verb", "host"}),
	}
	to.MustRegister(r.total, r.took)
	return r
}

// Wrap counts what goes through a RoundTripper; it is for rest.Config.Wrap.
func (r *Requests) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper{requests: r, next: next}
}

type roundTripper struct {
	requests *Requests
	next     http.RoundTripper
}

// RoundTrip is that of an http.RoundTripper.
func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := t.next.RoundTrip(req)
	t.requests.took.WithLabelValues(req.Method, req.URL.Host).Observe(time.Since(began).Seconds())
	code := "<error>" // as upstream
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	t.requests.total.WithLabelValues(code, req.Method, req.URL.Host).Inc()
	return resp, err
}

// WrappedRoundTripper is what client-go closes idle connections of.
func (t roundTripper) WrappedRoundTripper() http.RoundTripper { return t.next }
