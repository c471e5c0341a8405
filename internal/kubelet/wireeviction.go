package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/eviction"
	"github.com/holdfast-dev/holdfast/internal/kubelet/hoststats"
	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// wireEviction makes what keeps the node from running out of memory, disk and
// process identifiers.
func (k *Kubelet) wireEviction() {
	k.evictions = eviction.New(eviction.Config{
		Policy: k.cfg.Eviction, Dir: k.cfg.Dir, Machine: hoststats.New(k.cfg.Dir), Runtime: k.runtime, Cgroups: k.cgroups, PodMemory: k.cgroups.AllMemory(), Logs: k.folders, Volumes: k.volumeStats,
		Workers: k.workers, Statuses: k.statuses, Images: k.images.DeleteUnused, Containers: k.removeFinished, Changed: k.node.Poke, Known: k.loop.Synced(),
		Recorder: k.events, Node: k.nodeReference(), Metrics: k.cfg.Metrics, Log: k.cfg.Log.With("part", "eviction"),
	})
}

// pressure returns what the node is low on, in its conditions' words.
func (k *Kubelet) pressure() []v1.NodeConditionType { return k.evictions.Conditions() }

// removeFinished removes what is left of pods that have ended. A static pod that
// ended by itself would run again without that after a restart, and keeps it.
func (k *Kubelet) removeFinished(ctx context.Context) error {
	var finished []*v1.Pod
	for _, info := range k.workers.Snapshot() {
		if info.State != lifecycle.Finished || info.Pod == nil {
			continue
		}
		status, _ := k.statuses.Get(info.UID)
		if !staticpod.IsStatic(info.Pod) || status.Reason == reason.Evicted {
			finished = append(finished, info.Pod)
		}
	}
	return k.syncer.RemoveFinished(ctx, finished)
}
