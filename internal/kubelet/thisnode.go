package kubelet

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// What parts ask about this node, from the Node as the API last had it.

// thisNode returns the Node: until the API answers as it was kept, if it was.
func (k *Kubelet) thisNode() *v1.Node {
	if node := k.node.Node(); node != nil || k.checkpoint == nil {
		return node
	}
	return k.checkpoint.Node()
}

func (k *Kubelet) port() int {
	return k.cfg.Listeners[0].Addr().(*net.TCPAddr).Port
}

func (k *Kubelet) allocatable() v1.ResourceList {
	if node := k.thisNode(); node != nil {
		return node.Status.Allocatable
	}
	return nil
}

func (k *Kubelet) labels() map[string]string {
	if node := k.thisNode(); node != nil {
		return node.Labels
	}
	return nil
}

// seccompFolder is where localhost profiles lie, as in the upstream kubelet's
// folder.
func (k *Kubelet) seccompFolder() string { return filepath.Join(k.cfg.Dir, "seccomp") }

// nodeReference is what events about the node are about; upstream's kubelet
// puts the name for the UID, too, and kubectl looks for that.
func (k *Kubelet) nodeReference() *v1.ObjectReference {
	return &v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: k.cfg.NodeName, UID: types.UID(k.cfg.NodeName)}
}

// podNode is this node as pods' configurations need it.
func (k *Kubelet) podNode() *podfiles.Node {
	n := &podfiles.Node{
		Name: k.cfg.NodeName, IPs: k.addresses(), Allocatable: k.allocatable(), CgroupV2: k.cgroups.V2(),
		SingleProcessOOMKill: k.cfg.SingleProcessOOMKill != nil && *k.cfg.SingleProcessOOMKill,
		ServiceHost:          k.cfg.ServiceHost, ServicePort: k.cfg.ServicePort, HostDNS: k.hostDNS(), PodLogs: k.cfg.LogDir,
		SeccompFolder: k.seccompFolder(), SeccompDefault: k.cfg.SeccompDefault, HiddenPaths: k.hiddenPaths,
		ClusterDNS: k.cfg.ClusterDNS, ClusterDomain: k.cfg.ClusterDomain, NoCPUQuota: k.cfg.NoCPUQuota, CPUPeriod: k.cfg.CPUPeriod,
	}
	if node := k.thisNode(); node != nil {
		n.Handlers, n.RuntimeVersion = node.Status.RuntimeHandlers, node.Status.NodeInfo.ContainerRuntimeVersion
		n.MemoryCapacity = node.Status.Capacity.Memory().Value()
	}
	return n
}

// hostDNS are the resolver settings that pods have from this node. Where no file is
// to be read, a resolver asks its own machine, which in a pod is the pod.
func (k *Kubelet) hostDNS() podfiles.DNS {
	if k.cfg.ResolvConf != nil && *k.cfg.ResolvConf == "" {
		return podfiles.DNS{Servers: []string{"127.0.0.1"}, Searches: []string{"."}}
	}
	return k.resolver.DNS()
}

// cacheAge is how old what is known of ConfigMaps and Secrets that are not watched
// may become: a minute, and more where the controllers of a large cluster want it,
// as upstream's kubelet takes their annotation.
func (k *Kubelet) cacheAge() time.Duration {
	if node := k.thisNode(); node != nil {
		return objectAge(node.Annotations[v1.ObjectTTLAnnotationKey])
	}
	return objectAge("")
}

// objectAge is the age that an annotation asks for, in seconds, at least a minute.
func objectAge(annotation string) time.Duration {
	seconds, err := strconv.ParseUint(annotation, 10, 31)
	if err != nil {
		return time.Minute // there is none
	}
	return max(time.Minute, time.Duration(seconds)*time.Second)
}

// errNotRegistered is returned by nodeUID before the API knows the node.
var errNotRegistered = errors.New("the node is not registered yet")

func (k *Kubelet) nodeUID(context.Context) (types.UID, error) {
	if node := k.node.Node(); node != nil {
		return node.UID, nil
	}
	return "", errNotRegistered
}

// retryAt says when a pod is to be looked at though nothing happens: at the end
// of a back-off or of its activeDeadlineSeconds, whichever comes first.
func (k *Kubelet) retryAt(pod *v1.Pod) (time.Time, bool) {
	retry, retries := k.syncer.RetryAt(pod.UID)
	deadline, ends := k.statuses.Deadline(pod)
	if ends && (!retries || deadline.Before(retry)) {
		return deadline, true
	}
	return retry, retries
}

// toldStatus makes of a function what the prober asks for the status that the
// API has.
type toldStatus func(uid types.UID) (v1.PodStatus, bool)

// Get calls the function.
func (f toldStatus) Get(uid types.UID) (v1.PodStatus, bool) { return f(uid) }

func (k *Kubelet) told(uid types.UID) (v1.PodStatus, bool) { return k.statuses.Get(uid) }

// pokeMirrors has the mirrors made that waited for the node to be registered.
func (k *Kubelet) pokeMirrors(ctx context.Context) error {
	select {
	case <-k.node.Registered():
		k.mirrors.Poke()
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// passProbeResults tells the workers whose probes have a new answer.
func (k *Kubelet) passProbeResults(ctx context.Context) error {
	for {
		select {
		case uid := <-k.probes.Updates():
			k.workers.Poke(uid)
		case <-ctx.Done():
			return nil
		}
	}
}

// ImagesCame has pods looked at that may have waited for images: these, by
// their full names, have just come, not by a pull.
func (k *Kubelet) ImagesCame(refs []string) {
	for _, pod := range k.loop.Pods() {
		for _, image := range podfiles.Images(pod) {
			ref, err := reference.ParseDockerRef(image)
			if err == nil && slices.Contains(refs, ref.String()) {
				k.workers.Poke(pod.UID)
				break
			}
		}
	}
}
