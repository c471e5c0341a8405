// Package allocation says which resources a pod has on this node, where that is
// not what its specification asks for: the API lets them be changed while the
// pod runs, and this version goes on with those that the pod was started with.
//
// Everything here is a pure function; any goroutine may call it. Arguments are
// never changed, and results share with them what is the same.
package allocation

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Infeasible says, for events and conditions, why a resize is not done.
const Infeasible = "This version does not change the resources of a running pod: it goes on with those that it was started with. Delete the pod and make it again to change them."

// Keep returns pod with the resources of started, an earlier version of it.
func Keep(pod, started *v1.Pod) *v1.Pod {
	if !Differs(pod, started) {
		return pod
	}
	p := *pod
	p.Spec.Resources = started.Spec.Resources
	p.Spec.InitContainers = keep(pod.Spec.InitContainers, started.Spec.InitContainers)
	p.Spec.Containers = keep(pod.Spec.Containers, started.Spec.Containers)
	return &p
}

func keep(containers, started []v1.Container) []v1.Container {
	kept := slices.Clone(containers)
	for i := range kept {
		if was := named(started, kept[i].Name); was != nil {
			kept[i].Resources = was.Resources
		}
	}
	return kept
}

// Differs reports whether two versions of a pod ask for different resources.
func Differs(a, b *v1.Pod) bool {
	return !equality.Semantic.DeepEqual(a.Spec.Resources, b.Spec.Resources) ||
		differ(a.Spec.InitContainers, b.Spec.InitContainers) || differ(a.Spec.Containers, b.Spec.Containers)
}

func differ(a, b []v1.Container) bool {
	return slices.ContainsFunc(a, func(c v1.Container) bool {
		other := named(b, c.Name)
		return other != nil && !equality.Semantic.DeepEqual(c.Resources, other.Resources)
	})
}

func named(containers []v1.Container, name string) *v1.Container {
	i := slices.IndexFunc(containers, func(c v1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &containers[i]
}

// FromStatus returns a pod with the resources that its status tells of, which
// are those that an earlier agent started it with. A container of which the
// status tells nothing gets what the specification says.
func FromStatus(pod *v1.Pod) *v1.Pod {
	p := *pod
	if pod.Status.Resources != nil {
		p.Spec.Resources = pod.Status.Resources
	}
	p.Spec.InitContainers = told(pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	p.Spec.Containers = told(pod.Spec.Containers, pod.Status.ContainerStatuses)
	return &p
}

func told(containers []v1.Container, statuses []v1.ContainerStatus) []v1.Container {
	all := slices.Clone(containers)
	for i := range all {
		for j := range statuses {
			if statuses[j].Name == all[i].Name && statuses[j].Resources != nil {
				all[i].Resources = *statuses[j].Resources
			}
		}
	}
	return all
}
