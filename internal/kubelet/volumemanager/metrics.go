package volumemanager

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// totals are counted when somebody looks at them.
var totals = prometheus.NewDesc("volume_manager_total_volumes",
	"Volumes that pods want (desired_state_of_world) and that are mounted (actual_state_of_world), by plugin.", []string{"plugin_name", "state"}, nil)

// collector counts volumes under upstream's name.
type collector struct{ m *Manager }

// Describe is that of a prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) { to <- totals }

// Collect is that of a prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	type key struct{ plugin, state string }
	counts := map[key]int{}
	c.m.mu.Lock()
	for _, st := range c.m.mu.pods {
		if st.intent == wanted {
			for _, id := range st.names {
				counts[key{plugin(id), "desired_state_of_world"}]++
			}
		}
		for id := range st.volumes {
			counts[key{plugin(id), "actual_state_of_world"}]++
		}
	}
	c.m.mu.Unlock()
	for k, n := range counts {
		to <- prometheus.MustNewConstMetric(totals, prometheus.GaugeValue, float64(n), k.plugin, k.state)
	}
}

// plugin is upstream's name of what mounts a volume.
func plugin(id podvolumes.ID) string { return strings.Replace(string(id.Kind), "~", "/", 1) }

// newOperations measures what is done to volumes, under upstream's name.
func newOperations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "storage_operation_duration_seconds", Help: "How long it took to mount or unmount a volume, by plugin and by how it ended.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"volume_plugin", "operation_name", "status", "migrated"})
}

// measure counts a step that began then, if it mounted or unmounted a volume.
func (m *Manager) measure(s *step, then time.Time, err error) {
	operation := map[op]string{setUp: "volume_mount", tearDown: "volume_unmount"}[s.op]
	if operation == "" {
		return
	}
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.operations.WithLabelValues(plugin(s.id), operation, status, "false").Observe(time.Since(then).Seconds())
}
