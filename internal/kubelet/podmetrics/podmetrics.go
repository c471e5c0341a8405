// Package podmetrics tells under upstream's names which pods a node has and
// what their workers do.
//
// It keeps nothing: every look at /metrics asks anew, from any goroutine.
package podmetrics

import (
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// Config says whom to ask. All fields are required; the functions must not block.
type Config struct {
	Node    string                  // its name
	Pods    func() []*v1.Pod        // those that the node is to run
	Workers func() []lifecycle.Info // one a pod UID
}

// A Collector is a prometheus.Collector.
type Collector struct{ cfg Config }

// New returns a Collector that asks as cfg says.
func New(cfg Config) Collector { return Collector{cfg} }

var (
	nodeName  = prometheus.NewDesc("kubelet_node_name", "Always 1; its label is the node's name.", []string{"node"}, nil)
	desired   = prometheus.NewDesc("kubelet_desired_pods", "Pods that the node is to run; static is true for those that are not of the API.", []string{"static"}, nil)
	active    = prometheus.NewDesc("kubelet_active_pods", "Pods that hold resources of the node; static is true for those that are not of the API.", []string{"static"}, nil)
	mirrors   = prometheus.NewDesc("kubelet_mirror_pods", "Static pods that hold resources of the node, each of which is shown in the API.", nil, nil)
	working   = prometheus.NewDesc("kubelet_working_pods", "Pods with a worker, by what it does, and by whether the pod is desired, not any more (orphan) or only known to the runtime.", []string{"lifecycle", "config", "static"}, nil)
	ephemeral = prometheus.NewDesc("kubelet_managed_ephemeral_containers", "Ephemeral containers of the pods that the node is to run.", nil, nil)
)

// Describe is that of a prometheus.Collector.
func (c Collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{nodeName, desired, active, mirrors, working, ephemeral} {
		to <- desc
	}
}

// Collect is that of a prometheus.Collector.
func (c Collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value int, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	pods, workers := c.cfg.Pods(), c.cfg.Workers()
	ended := map[types.UID]bool{}
	for _, w := range workers {
		ended[w.UID] = w.State >= lifecycle.Terminated
	}
	counts := map[bool]struct{ desired, active int }{}
	debugged := 0
	for _, pod := range pods {
		count := counts[staticpod.IsStatic(pod)]
		count.desired++
		if !lifecycle.Terminal(pod) && !ended[pod.UID] {
			count.active++
		}
		counts[staticpod.IsStatic(pod)] = count
		debugged += len(pod.Spec.EphemeralContainers)
	}
	gauge(nodeName, 1, c.cfg.Node)
	for _, static := range []bool{false, true} {
		gauge(desired, counts[static].desired, staticLabel(static))
		gauge(active, counts[static].active, staticLabel(static))
	}
	gauge(mirrors, counts[true].active)
	gauge(ephemeral, debugged)
	countWorkers(workers, gauge)
}

// staticLabel is the value of upstream's label.
func staticLabel(static bool) string {
	if static {
		return "true"
	}
	return ""
}

type workKey struct{ lifecycle, config, static string }

// countWorkers counts by what workers do. Every combination has a series, so that none
// is lost when its last pod is.
func countWorkers(all []lifecycle.Info, gauge func(*prometheus.Desc, int, ...string)) {
	counts := map[workKey]int{}
	for _, state := range []string{"sync", "terminating", "terminated"} {
		for _, config := range []string{"desired", "orphan"} {
			counts[workKey{state, config, ""}], counts[workKey{state, config, "true"}] = 0, 0
		}
		counts[workKey{state, "runtime_only", "unknown"}] = 0
	}
	for _, w := range all {
		key := workKey{"sync", "desired", ""}
		switch {
		case w.State >= lifecycle.Terminated:
			key.lifecycle = "terminated"
		case w.State == lifecycle.Terminating:
			key.lifecycle = "terminating"
		}
		switch {
		case w.Pod == nil:
			key.config, key.static = "runtime_only", "unknown"
		case w.Removed:
			key.config = "orphan"
		}
		if w.Pod != nil {
			key.static = staticLabel(staticpod.IsStatic(w.Pod))
		}
		counts[key]++
	}
	for key, n := range counts {
		gauge(working, n, key.lifecycle, key.config, key.static)
	}
}
