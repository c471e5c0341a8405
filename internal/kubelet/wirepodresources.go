package kubelet

import (
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podresources"
)

// wirePodResources makes what tells agents on this machine which pods run here.
func (k *Kubelet) wirePodResources() {
	k.podResources = podresources.New(podresources.Config{
		Socket: filepath.Join(k.cfg.Dir, "pod-resources", "kubelet.sock"), Pods: k.loop, Active: k.activePods,
		Devices: k.devices.Devices, Allocatable: k.devices.Allocatable,
		Metrics: k.cfg.Metrics, Log: k.cfg.Log.With("part", "podresources"),
	})
}

// activePods returns the wanted pods that have not ended.
func (k *Kubelet) activePods() []*v1.Pod {
	ended := map[types.UID]bool{}
	for _, info := range k.workers.Snapshot() {
		ended[info.UID] = info.State >= lifecycle.Terminated
	}
	var active []*v1.Pod
	for _, pod := range k.loop.Pods() {
		if !ended[pod.UID] && !lifecycle.Terminal(pod) {
			active = append(active, pod)
		}
	}
	return active
}
