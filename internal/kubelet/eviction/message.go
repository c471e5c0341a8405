package eviction

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Annotations of the event Evicted, upstream's: what others read instead of its
// message.
const (
	offendingContainers      = "offending_containers"
	offendingContainersUsage = "offending_containers_usage"
	offendingPod             = "offending_pod"
	offendingPodUsage        = "offending_pod_usage"
	starvedResource          = "starved_resource"
)

// message says, in upstream's words, why a pod goes: what is low, and which of
// its containers use more than they asked for.
func message(t threshold, o observation, c candidate) (text string, annotations map[string]string) {
	name := t.signal.resource()
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %v. ", name)
	fmt.Fprintf(&b, "Threshold quantity: %v, available: %v. ", t.value.text(o.capacity), resource.NewQuantity(o.available, formatOf(name)))
	annotations = map[string]string{}

	if name == v1.ResourceMemory && resourcehelper.IsPodLevelResourcesSet(c.pod) {
		if asked, ok := c.pod.Spec.Resources.Requests[name]; ok {
			used := resource.NewQuantity(c.used, resource.BinarySI)
			fmt.Fprintf(&b, "Pod %s was using %s, request is %s, has larger consumption of %v. ", c.pod.Name, used, &asked, name)
			annotations[offendingPod], annotations[offendingPodUsage] = c.pod.Name, used.String()
		}
	}
	var names, usages []string
	for i := range c.usage.Containers {
		u := &c.usage.Containers[i]
		used, known := containerUses(name, u)
		asked, ours := requestOf(c.pod, u.Name, name)
		if !ours || !known || used <= asked.Value() {
			continue
		}
		text := resource.NewQuantity(used, resource.BinarySI).String()
		fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %v. ", u.Name, text, &asked, name)
		names, usages = append(names, u.Name), append(usages, text)
	}
	annotations[offendingContainers] = strings.Join(names, ",")
	annotations[offendingContainersUsage] = strings.Join(usages, ",")
	annotations[starvedResource] = string(name)
	return b.String(), annotations
}

// text writes an amount as who set it did, or of a percentage what it comes to.
func (a amount) text(capacity int64) string {
	if a.quantity != nil {
		return a.quantity.String()
	}
	return resource.NewQuantity(a.of(capacity), resource.BinarySI).String()
}

func formatOf(name v1.ResourceName) resource.Format {
	if name == inodes || name == pids {
		return resource.DecimalSI
	}
	return resource.BinarySI
}

// containerUses returns what a container uses in bytes of memory or of disk; it
// is not known of anything else.
func containerUses(name v1.ResourceName, u *stats.ContainerStats) (used int64, known bool) {
	switch {
	case name == v1.ResourceMemory && u.Memory != nil && u.Memory.WorkingSetBytes != nil:
		return value(u.Memory.WorkingSetBytes), true
	case name == v1.ResourceEphemeralStorage && u.Rootfs != nil && u.Rootfs.UsedBytes != nil && u.Logs != nil && u.Logs.UsedBytes != nil:
		return value(u.Rootfs.UsedBytes) + value(u.Logs.UsedBytes), true
	}
	return 0, false
}

// requestOf returns what a container of a pod asked for. An ephemeral container
// cannot ask and is not blamed.
func requestOf(pod *v1.Pod, container string, name v1.ResourceName) (resource.Quantity, bool) {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == container {
				return list[i].Resources.Requests[name], true
			}
		}
	}
	return resource.Quantity{}, false
}
