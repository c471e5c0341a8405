// Package allocation says which resources a pod has on this node, where that is
// not what its specification asks for: the API lets them be changed while the
// pod runs, and the node gives what it has room for.
//
// What is wanted is the API's specification; what is allocated is what the node
// has admitted; both become one when the node grants a resize. The containers
// get there a little later, which is the resize's progress.
//
// Everything here is a pure function; any goroutine may call it. Arguments are
// never changed, and results share with them what is the same.
package allocation

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	resourcehelper "k8s.io/component-helpers/resource"
)

// A Pending is why a resize that is wanted is not allocated.
type Pending struct {
	Reason     string // v1.PodReasonDeferred or v1.PodReasonInfeasible
	Message    string
	Generation int64 // of the pod that wants it
}

// A Progress is how far a resize has come that is allocated and not yet done.
type Progress struct {
	Error      string // why it does not get on; empty: it does
	Generation int64  // of the pod when it was allocated
}

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
// are those that an earlier agent gave it. A container of which the status
// tells nothing gets what the specification says.
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

// Grows reports whether a pod asks for more CPU or memory than an earlier
// version of it.
func Grows(pod, started *v1.Pod) bool {
	before := resourcehelper.PodRequests(started, resourcehelper.PodResourcesOptions{})
	after := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return after.Cpu().Cmp(*before.Cpu()) > 0 || after.Memory().Cmp(*before.Memory()) > 0
}

// Tell writes what an event says of a resize: what happened, then the pod's
// resources and generation in JSON, with why if it is not empty. The form is
// that of the upstream kubelet's events.
func Tell(what string, pod *v1.Pod, why string) string {
	type container struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources,omitzero"`
	}
	list := func(containers []v1.Container) []container {
		var out []container
		for i := range containers {
			out = append(out, container{containers[i].Name, containers[i].Resources})
		}
		return out
	}
	text, err := json.Marshal(struct {
		InitContainers []container `json:"initContainers,omitempty"`
		Containers     []container `json:"containers,omitempty"`
		Generation     int64       `json:"generation"`
		Error          string      `json:"error,omitempty"`
	}{list(pod.Spec.InitContainers), list(pod.Spec.Containers), pod.Generation, why})
	if err != nil {
		return what
	}
	return fmt.Sprintf("Pod resize %s: %s", what, text)
}
