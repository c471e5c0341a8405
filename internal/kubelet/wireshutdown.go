package kubelet

import (
	"context"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/logind"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodeshutdown"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/kubelet/syncloop"
)

// Upstream's words for pods and a machine that goes down.
const (
	shutdownMessage   = "Pod was terminated in response to imminent node shutdown."
	shutdownRejection = "Pod was rejected as the node is shutting down."
)

// wireShutdown makes what ends pods when the machine goes down.
func (k *Kubelet) wireShutdown() {
	k.shutdown = nodeshutdown.New(nodeshutdown.Config{
		Periods: k.cfg.Shutdown,
		Open: func(ctx context.Context) (nodeshutdown.Login, error) {
			return logind.Open(ctx, logind.Config{Name: k.cfg.ShutdownName})
		},
		Pods: shutdownPods{k}, Known: k.loop.Synced(), Changed: k.node.Poke,
		Events: k.events, Node: k.nodeReference(), StateFile: filepath.Join(k.cfg.Dir, "graceful_node_shutdown_state"),
		Metrics: k.cfg.Metrics, Log: k.cfg.Log.With("part", "nodeshutdown"),
	})
}

// WithdrawShutdown removes what a kubelet of that name has written for logind.
func WithdrawShutdown(name string) error { return logind.Withdraw(logind.Config{Name: name}) }

func refusedInShutdown() syncloop.Verdict {
	return syncloop.Verdict{Reason: reason.NodeShutdown, Message: shutdownRejection}
}

// shutdownPods are the pods that end with the machine.
type shutdownPods struct{ *Kubelet }

// Active returns the pods of which something may run.
func (k shutdownPods) Active() []*v1.Pod {
	var pods []*v1.Pod
	for _, info := range k.workers.Snapshot() {
		if info.Pod != nil && info.State < lifecycle.Terminated {
			pods = append(pods, info.Pod)
		}
	}
	return pods
}

// End has a pod end within so many seconds.
func (k shutdownPods) End(pod *v1.Pod, grace int64) {
	k.statuses.End(pod.UID, reason.Terminated, shutdownMessage, true)
	k.workers.Update(lifecycle.Request{Kind: lifecycle.Kill, Pod: pod, Grace: &grace})
}

// WaitFinished waits until nothing of a pod runs and its volumes are unmounted.
func (k shutdownPods) WaitFinished(ctx context.Context, uid types.UID) error {
	return k.workers.WaitFinished(ctx, uid)
}

// Resume has static pods start again, as nobody else would make them anew. What
// is left of each goes first; the sync loop then finds that it is missing.
func (k shutdownPods) Resume(ended []*v1.Pod) {
	for _, pod := range ended {
		if staticpod.IsStatic(pod) {
			k.workers.Update(lifecycle.Request{Kind: lifecycle.Remove, Pod: pod})
		}
	}
}

// countPreemptions returns what counts pods that end so that a critical one fits,
// by the resource that was lacking, as upstream's metric does.
func countPreemptions(metrics prometheus.Registerer) func(lack string) {
	preemptions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_preemptions", Help: "Cumulative number of pod preemptions by preemption resource",
	}, []string{"preemption_signal"})
	metrics.MustRegister(preemptions)
	return func(lack string) { preemptions.WithLabelValues(lack).Inc() }
}
