package kubelet

import "github.com/holdfast-dev/holdfast/internal/kubelet/podmetrics"

// wireMetrics adds to the metrics what is asked for when somebody looks at them.
func (k *Kubelet) wireMetrics() {
	k.cfg.Metrics.MustRegister(podmetrics.New(podmetrics.Config{
		Node: k.cfg.NodeName, Pods: k.loop.Pods, Workers: k.workers.Snapshot,
	}))
}
