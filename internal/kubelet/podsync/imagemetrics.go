package podsync

import (
	"cmp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// imageMetrics are upstream's of images.
type imageMetrics struct {
	requests *prometheus.CounterVec
	checks   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newImageMetrics registers the metrics with to, if that is not nil.
func newImageMetrics(to prometheus.Registerer) imageMetrics {
	m := imageMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_manager_ensure_image_requests_total",
			Help: "Containers' requests for their image, by pull policy, by whether the image was there, and by whether it had to be pulled.",
		}, []string{"pull_policy", "present_locally", "pull_required"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_imagemanager_image_mustpull_checks_total",
			Help: "Checks whether a pod may use an image that is there, by result.",
		}, []string{"result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_image_pull_duration_seconds",
			Help:    "Time from when a pull was wanted until the image was there, by the image's size.",
			Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}, []string{"image_size_in_bytes"}),
	}
	if to != nil {
		to.MustRegister(m.requests, m.checks, m.duration)
	}
	return m
}

func (m imageMetrics) count(q *request) {
	m.requests.WithLabelValues(strings.ToLower(string(q.policy)), cmp.Or(q.present, "unknown"), cmp.Or(q.required, "unknown")).Inc()
}

func (m imageMetrics) pulled(bytes uint64, took time.Duration) {
	m.duration.WithLabelValues(sizeBucket(bytes)).Observe(took.Seconds())
}

// sizeBucket returns upstream's name of a range of sizes.
func sizeBucket(bytes uint64) string {
	const mebi, gibi = 1 << 20, 1 << 30
	if bytes == 0 {
		return "N/A"
	}
	for _, b := range []struct {
		upTo uint64
		name string
	}{
		{10 * mebi, "0-10MB"},
		{100 * mebi, "10MB-100MB"},
		{500 * mebi, "100MB-500MB"},
		{gibi, "500MB-1GB"},
		{5 * gibi, "1GB-5GB"},
		{10 * gibi, "5GB-10GB"},
		{20 * gibi, "10GB-20GB"},
		{30 * gibi, "20GB-30GB"},
		{40 * gibi, "30GB-40GB"},
		{60 * gibi, "40GB-60GB"},
		{100 * gibi, "60GB-100GB"},
	} {
		if bytes <= b.upTo {
			return b.name
		}
	}
	return "GT100GB"
}
