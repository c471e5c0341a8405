package kubelet

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/holdfast-dev/holdfast/internal/kubelet/devices"
	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pluginregistry"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/syncloop"
)

// wireDevices makes what gives containers the devices of plugins.
func (k *Kubelet) wireDevices() error {
	var err error
	k.devices, err = devices.New(devices.Config{
		Dir: filepath.Join(k.cfg.Dir, "device-plugins"), Holders: k.deviceHolders, Changed: k.devicesChanged,
		Metrics: k.cfg.Metrics, Log: k.cfg.Log.With("part", "devices"),
	})
	return err
}

// deviceHolders returns the pods that may use devices: those that are wanted and
// have not ended, and those whose worker has not ended them. They are known once
// every source was taken.
func (k *Kubelet) deviceHolders() (pods sets.Set[types.UID], known bool) {
	select {
	case <-k.loop.Synced():
	default:
		return nil, false
	}
	pods = sets.New[types.UID]()
	for _, info := range k.workers.Snapshot() {
		if info.State < lifecycle.Terminated {
			pods.Insert(info.UID)
		}
	}
	for _, pod := range k.activePods() {
		pods.Insert(pod.UID)
	}
	return pods, true
}

// devicesChanged has the node reported, and the pods whose devices are well or ill
// now.
func (k *Kubelet) devicesChanged(pods []types.UID) {
	k.node.Poke()
	for _, uid := range pods {
		k.workers.Poke(uid)
	}
}

// admitDevices gives a pod its devices before it is asked whether it fits, as
// upstream's kubelet does, and with its words if they cannot be given.
func (k *Kubelet) admitDevices(pod *v1.Pod, others []*v1.Pod) syncloop.Verdict {
	known, err := k.devices.Admit(pod, others)
	switch {
	case !known:
		return syncloop.Verdict{Wait: true}
	case err != nil:
		return syncloop.Verdict{Reason: reason.UnexpectedAdmissionError, Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
	}
	return syncloop.Verdict{}
}

// nodeFor returns the Node as the admission of a pod is to count it: the pod may have
// been given devices that the API's Node does not say.
func (k *Kubelet) nodeFor(pod *v1.Pod) *v1.Node {
	node := k.thisNode()
	if node == nil {
		return nil
	}
	counted := *node
	counted.Status.Allocatable = k.devices.Fits(pod.UID, node.Status.Allocatable)
	return &counted
}

// deviceHandler passes the device plugins that register by the folder of plugins.
type deviceHandler struct{ k *Kubelet }

// Register takes a plugin, which is called as its resource.
func (h deviceHandler) Register(ctx context.Context, p pluginregistry.Plugin) error {
	return h.k.devices.Register(ctx, p.Name, p.Endpoint, p.Versions)
}

// Deregister lets go of a plugin.
func (h deviceHandler) Deregister(p pluginregistry.Plugin) {
	h.k.devices.Deregister(p.Name, p.Endpoint)
}
