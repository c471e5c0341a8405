// Package podadmit decides whether a node takes a pod, and says why not.
//
// It asks three things: whether this version can do all that the pod asks for,
// so that nothing is ever ignored silently; whether the pod belongs on this
// node; and whether there is room beside the pods that are here already.
// Reasons and messages are the upstream kubelet's where it has them.
//
// Everything here is a pure function; any goroutine may call it.
package podadmit

import (
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// A Refusal is why a pod is not taken, in the words of the pod's status.
type Refusal struct {
	Reason  string
	Message string
}

// Features are what this kubelet and its host can do beyond what all can. A
// pod that asks for one that is missing is refused.
type Features struct {
	Probes         bool // a prober runs
	ActiveDeadline bool // activeDeadlineSeconds ends pods
	ReadinessGates bool // readiness gates are part of the Ready condition
	AppArmor       bool // the host's kernel enforces AppArmor profiles
}

// A Node is what pods are admitted to.
type Node struct {
	// Node is the node as registered: its labels, taints and allocatable
	// resources. Nil: it is not registered yet, and only what the pod itself
	// asks for is judged.
	Node     *v1.Node
	Features Features
	// Pressure are those of MemoryPressure, DiskPressure and PIDPressure that the
	// node has, whatever is registered.
	Pressure []v1.NodeConditionType
	// UnsafeSysctls are settings that pods may use beside the safe ones; a name
	// ending in * stands for all that begin like it.
	UnsafeSysctls []string
}

// Admit returns why the node does not take pod beside others, or nil. others
// are the pods that hold resources here, without pod itself and without those
// that have ended.
func Admit(n Node, pod *v1.Pod, others []*v1.Pod) *Refusal {
	for _, refuse := range judges(n, resources) {
		if r := refuse(n, pod, others); r != nil {
			return r
		}
	}
	return nil
}

// judges returns those who are asked, one after the other. room is the one about
// resources; nil: nobody is asked about them.
func judges(n Node, room judge) []judge {
	judges := []judge{identity, supported, pressure, platform, sysctls, apparmor, ports}
	if n.Node == nil {
		return judges
	}
	judges = append(judges, groups)
	if room != nil {
		judges = append(judges, room)
	}
	return append(judges, placement, taints)
}

// A judge refuses a pod for one kind of reason.
type judge func(n Node, pod *v1.Pod, others []*v1.Pod) *Refusal

// identity refuses a UID that would lead a path out of the pods' folder. The
// API server makes UIDs itself; a manifest may hold anything.
func identity(_ Node, pod *v1.Pod, _ []*v1.Pod) *Refusal {
	if podfiles.IsFolderName(string(pod.UID)) {
		return nil
	}
	return &Refusal{reason.FailedValidation, fmt.Sprintf("metadata.uid: %q cannot be the name of a folder", pod.UID)}
}

// supported refuses fields that this version does not act on.
func supported(n Node, pod *v1.Pod, _ []*v1.Pod) *Refusal {
	if f := unsupportedField(&pod.Spec, n.Features); f != nil {
		return &Refusal{reason.UnsupportedField, f.Error()}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if err := podvolumes.Supported(v); err != nil {
			return &Refusal{reason.UnsupportedField, fmt.Sprintf("spec.volumes[%d] (%s): %v", i, v.Name, err)}
		}
		if field := podvolumes.NeedsAPIPod(v); field != "" && isStatic(pod) {
			return &Refusal{reason.UnsupportedField, fmt.Sprintf("spec.volumes[%d] (%s): %s: it is made for a pod of the API, which a static pod is not: create the pod with kubectl", i, v.Name, field)}
		}
	}
	return nil
}

// Ephemeral returns which field of the pod's ephemeral container called name this
// version does not act on, or nil. It comes when its pod has been admitted.
func Ephemeral(pod *v1.Pod, name string) error {
	for i := range pod.Spec.EphemeralContainers {
		c := &pod.Spec.EphemeralContainers[i]
		if c.Name != name {
			continue
		}
		path := fmt.Sprintf("spec.ephemeralContainers[%d]", i)
		if err := walk(reflect.ValueOf(c).Elem(), path, "ephemeralContainers", Features{}); err != nil {
			return err
		}
	}
	return nil
}

// platform refuses pods for another operating system.
func platform(_ Node, pod *v1.Pod, _ []*v1.Pod) *Refusal {
	if os, ok := pod.Labels[v1.LabelOSStable]; ok && os != string(v1.Linux) {
		return &Refusal{"PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if pod.Spec.OS != nil && pod.Spec.OS.Name != v1.Linux {
		return &Refusal{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

// groups refuses pods whose policy of groups the runtime does not know.
func groups(n Node, pod *v1.Pod, _ []*v1.Pod) *Refusal {
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != v1.SupplementalGroupsPolicyStrict {
		return nil
	}
	if f := n.Node.Status.Features; f == nil || f.SupplementalGroupsPolicy == nil || !*f.SupplementalGroupsPolicy {
		return &Refusal{"SupplementalGroupsPolicyNotSupported", fmt.Sprintf("SupplementalGroupsPolicy=%s is not supported in this node", v1.SupplementalGroupsPolicyStrict)}
	}
	return nil
}

func apparmor(n Node, pod *v1.Pod, _ []*v1.Pod) *Refusal {
	if n.Features.AppArmor {
		return nil
	}
	for _, c := range podfiles.Containers(pod) {
		if podfiles.AppArmor(pod, c) {
			return &Refusal{"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
		}
	}
	return nil
}

func isStatic(pod *v1.Pod) bool { return staticpod.IsStatic(pod) }
