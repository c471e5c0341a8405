// Package runtimelabels names the labels and annotations that the kubelet puts
// on sandboxes and containers, by which it knows its own again after a
// restart. They are the upstream kubelet's, so that crictl and log shippers
// read them.
package runtimelabels

// Labels of sandboxes and containers.
const (
	PodName       = "io.kubernetes.pod.name"
	PodNamespace  = "io.kubernetes.pod.namespace"
	PodUID        = "io.kubernetes.pod.uid"
	ContainerName = "io.kubernetes.container.name"
)

// Annotations of containers.
const (
	ContainerHash          = "io.kubernetes.container.hash"
	RestartCount           = "io.kubernetes.container.restartCount"
	TerminationMessagePath = "io.kubernetes.container.terminationMessagePath"
	TerminationPolicy      = "io.kubernetes.container.terminationMessagePolicy"
	PodGracePeriod         = "io.kubernetes.pod.terminationGracePeriod" // seconds
	PodDeletionGracePeriod = "io.kubernetes.pod.deletionGracePeriod"    // seconds

	// MemoryRequest is our own: the request in bytes of a container that wants to be
	// restarted when it changes. The runtime keeps nothing else of it.
	MemoryRequest = "holdfast.dev/container.memoryRequest"
)
