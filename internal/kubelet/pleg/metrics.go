package pleg

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// metrics has upstream's names for upstream's facts.
type metrics struct {
	listTime     prometheus.Histogram
	listInterval prometheus.Histogram
	inspectTime  prometheus.Histogram
	lastSeen     prometheus.Gauge
	streams      prometheus.Counter
	streamErrors prometheus.Counter
	latency      prometheus.Histogram
	missed       prometheus.Counter
}

func newMetrics(g *Generator) *metrics {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.DefBuckets})
	}
	m := &metrics{
		listTime:     histogram("kubelet_pleg_relist_duration_seconds", "Time that a list of all pods took."),
		listInterval: histogram("kubelet_pleg_relist_interval_seconds", "Time between the beginnings of two lists of all pods."),
		inspectTime:  histogram("kubelet_pleg_pod_relist_duration_seconds", "Time that the inspection of one pod took."),
		lastSeen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_pleg_last_seen_seconds", Help: "Unix time of the last good list of all pods.",
		}),
		streams: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_evented_pleg_connection_success_count", Help: "Event streams of the runtime that brought events.",
		}),
		streamErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_evented_pleg_connection_error_count", Help: "Event streams of the runtime that broke.",
		}),
		latency: histogram("kubelet_evented_pleg_connection_latency_seconds", "Age of an event of the runtime when it came."),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_pleg_missed_events_total", Help: "Changes of pods that a list found while there was an event stream, which had not told.",
		}),
	}
	if reg := g.cfg.Registerer; reg != nil {
		reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_pleg_discard_events", Help: "Events that were discarded: none ever is. It is here for alerts that ask.",
		}), m.listTime, m.listInterval, m.inspectTime, m.lastSeen, m.streams, m.streamErrors, m.latency, m.missed, running{&g.known},
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "holdfast_pleg_relist_age_seconds", Help: "Age of the last good list of all pods; it grows while a list hangs.",
			}, func() float64 { return g.age().Seconds() }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "holdfast_pleg_failing_pods", Help: "Pods whose last inspection failed.",
			}, func() float64 { return float64(g.failing()) }))
	}
	return m
}

// running counts, when asked, what the runtime has.
type running struct{ known *known }

var (
	runningPods       = prometheus.NewDesc("kubelet_running_pods", "Pods with a running sandbox.", nil, nil)
	runningContainers = prometheus.NewDesc("kubelet_running_containers", "Containers by state.", []string{"container_state"}, nil)
)

func (r running) Describe(to chan<- *prometheus.Desc) {
	to <- runningPods
	to <- runningContainers
}

func (r running) Collect(to chan<- prometheus.Metric) {
	pods, containers := r.known.count()
	to <- prometheus.MustNewConstMetric(runningPods, prometheus.GaugeValue, float64(pods))
	for _, state := range []observed.State{observed.Created, observed.Running, observed.Exited, observed.Unknown} {
		to <- prometheus.MustNewConstMetric(runningContainers, prometheus.GaugeValue, float64(containers[state]), string(state))
	}
}
