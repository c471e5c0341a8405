// Package podfiles says what the runtime is given for a pod: the sandbox's and
// the containers' configuration, their environment, the hosts file, the DNS
// settings and the paths under the kubelet's folder.
//
// Everything here is a pure function of the pod, the node and the objects that
// the caller has read; nothing here touches the disk or the network, so any
// goroutine may call anything. Results are new values that the caller owns;
// arguments are never changed.
package podfiles

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// A Node is what a pod's files depend on besides the pod. The zero value of a
// field has the meaning given with it.
type Node struct {
	Name string   // the node's name
	IPs  []string // the node's addresses, primary first; status.hostIP fails without

	// Allocatable is what resourceFieldRef gives for a limit that the container
	// does not set.
	Allocatable v1.ResourceList
	// MemoryCapacity of the machine in bytes, for OOM scores. Zero: a burstable
	// container gets the lowest score of its class.
	MemoryCapacity int64
	// CgroupV2 says that the unified hierarchy holds all controllers.
	CgroupV2 bool
	// SingleProcessOOMKill ends only the process that is over its container's
	// memory limit, not all of the container's. With cgroup v1 it is always so.
	SingleProcessOOMKill bool
	// NoCPUQuota leaves CPU limits unenforced, as cpuCFSQuota: false does.
	NoCPUQuota bool
	// CPUPeriod is the CFS period. Default 100 ms.
	CPUPeriod time.Duration

	// SeccompDefault gives RuntimeDefault to containers that name no profile;
	// they are unconfined otherwise.
	SeccompDefault bool
	// SeccompFolder is where localhost profiles lie. A container whose profile is
	// not there does not start; the runtime says so.
	SeccompFolder string

	// HiddenPaths are paths of this machine that containers do not see, beside
	// those that exist on all, unless procMount unmasks them.
	HiddenPaths []string

	// ServiceHost and ServicePort are where pods reach the API server, for
	// KUBERNETES_SERVICE_HOST and _PORT. Empty: the service "kubernetes" of the
	// API is used, or nothing.
	ServiceHost string
	ServicePort string

	ClusterDomain string   // such as cluster.local; empty: no cluster domain
	ClusterDNS    []string // empty: ClusterFirst falls back to Default
	HostDNS       DNS      // the node's resolv.conf

	PodLogs string // folder of all pods' logs

	// RuntimeVersion is the runtime's name and version, such as
	// containerd://2.2.1; empty: not known.
	RuntimeVersion string

	// Handlers are the runtime's, with what each is able to. One that is not here
	// is able to nothing of it.
	Handlers []v1.NodeRuntimeHandler
}

// ReadsOnlyRecursively reports whether the runtime's handler called name can
// make a mount read-only with all that is mounted below.
func (n *Node) ReadsOnlyRecursively(name string) bool {
	return isTrue(n.handler(name).RecursiveReadOnlyMounts)
}

// separatesUsers reports whether the runtime's handler called name can give a
// pod user IDs of its own.
func (n *Node) separatesUsers(name string) bool { return isTrue(n.handler(name).UserNamespaces) }

func (n *Node) handler(name string) v1.NodeRuntimeHandlerFeatures {
	for _, h := range n.Handlers {
		if h.Name == name && h.Features != nil {
			return *h.Features
		}
	}
	return v1.NodeRuntimeHandlerFeatures{}
}

func (n *Node) cpuPeriod() time.Duration {
	if n.CPUPeriod == 0 {
		return 100 * time.Millisecond
	}
	return n.CPUPeriod
}

// A Warning is something worth an event that does not stop the pod.
type Warning struct {
	Reason  string
	Message string
}

// Containers returns pointers to the pod's init and regular containers, in the
// order of the specification.
func Containers(pod *v1.Pod) []*v1.Container {
	all := make([]*v1.Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		all = append(all, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		all = append(all, &pod.Spec.Containers[i])
	}
	return all
}

// Container returns the pod's container called name, whatever its kind, or
// nil. For an ephemeral container it is the part that all kinds share.
func Container(pod *v1.Pod, name string) *v1.Container {
	for _, c := range Containers(pod) {
		if c.Name == name {
			return c
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return (*v1.Container)(&c.EphemeralContainerCommon)
		}
	}
	return nil
}

// IsSidecar reports whether an init container is restartable: one that keeps
// running beside the regular containers.
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}
