package podadmit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"

	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// A Room is what has to be done so that a critical pod fits.
type Room struct {
	End  []*v1.Pod       // these end first
	Lack v1.ResourceName // the first resource of which there was too little
}

// AdmitOrPreempt is Admit, but a critical pod that lacks nothing but room is taken
// once others have ended: with a Room, which names those, the refusal says why it
// does not fit now.
// Static pods are critical, and those of the system's priorities. As upstream's
// preemption has it, room is made by pods that are not critical or of a lower
// priority, and so that few end: guaranteed ones only if all others would not do,
// then burstable ones, and of each class those whose requests come closest to
// what is missing.
func AdmitOrPreempt(n Node, pod *v1.Pod, others []*v1.Pod) (*Room, *Refusal) {
	refusal := Admit(n, pod, others)
	if refusal == nil || n.Node == nil || !isCritical(pod) {
		return nil, refusal
	}
	for _, refuse := range judges(n, nil) {
		if r := refuse(n, pod, others); r != nil {
			return nil, r
		}
	}
	lack := missing(n, pod, others)
	end, ok := victims(pod, others, lack)
	if !ok {
		return nil, &Refusal{reason.UnexpectedAdmissionError, "Unexpected error while attempting to recover from admission failure: " +
			"preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: " + lack.String()}
	}
	return &Room{End: end, Lack: lack[0].name}, refusal
}

func isCritical(pod *v1.Pod) bool {
	return isStatic(pod) || staticpod.IsCritical(pod)
}

// gives reports whether a pod may end to make room for another, as upstream's
// kubelet has it.
func gives(pod, other *v1.Pod) bool {
	if isCritical(pod) && !isCritical(other) {
		return true
	}
	return pod.Spec.Priority != nil && other.Spec.Priority != nil && *pod.Spec.Priority > *other.Spec.Priority
}

// A need is how much of a resource is missing.
type need struct {
	name     v1.ResourceName
	quantity int64
}

// A shortage has no need of nothing.
type shortage []need

// String is in upstream's form.
func (ns shortage) String() string {
	var b strings.Builder
	for _, n := range ns {
		fmt.Fprintf(&b, "(res: %v, q: %d), ", n.name, n.quantity)
	}
	return "[" + b.String() + "]"
}

// missing returns what a pod asks for beyond what is left.
func missing(n Node, pod *v1.Pod, others []*v1.Pod) shortage {
	var ns shortage
	want := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range append([]v1.ResourceName{v1.ResourcePods}, inOrder(want)...) {
		asked := requested(pod, name)
		if asked == 0 {
			continue
		}
		lack := asked - amount(name, n.Node.Status.Allocatable)
		for _, other := range others {
			lack += requested(other, name)
		}
		if lack > 0 {
			ns = append(ns, need{name, lack})
		}
	}
	return ns
}

func requested(pod *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return amount(name, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
}

// less returns what is missing still when pods have ended.
func (ns shortage) less(pods ...*v1.Pod) shortage {
	var left shortage
	for _, n := range ns {
		for _, p := range pods {
			n.quantity -= requested(p, n.name)
		}
		if n.quantity > 0 {
			left = append(left, n)
		}
	}
	return left
}

// distance is how far a pod is from giving all that is missing: each resource
// counts by the part of it that the pod does not give, squared.
func (ns shortage) distance(pod *v1.Pod) float64 {
	var d float64
	for _, n := range ns {
		if left := n.quantity - requested(pod, n.name); left > 0 {
			part := float64(left) / float64(n.quantity)
			d += part * part
		}
	}
	return d
}

// victims returns which pods end, or false if all of them would not do.
func victims(pod *v1.Pod, others []*v1.Pod, ns shortage) ([]*v1.Pod, bool) {
	byClass := map[v1.PodQOSClass][]*v1.Pod{}
	for _, other := range others {
		if gives(pod, other) {
			class := qos.GetPodQOS(other)
			byClass[class] = append(byClass[class], other)
		}
	}
	best, burst, sure := byClass[v1.PodQOSBestEffort], byClass[v1.PodQOSBurstable], byClass[v1.PodQOSGuaranteed]
	sureEnd, ok := closest(sure, ns.less(slices.Concat(best, burst)...))
	if !ok {
		return nil, false
	}
	burstEnd, ok := closest(burst, ns.less(slices.Concat(best, sureEnd)...))
	if !ok {
		return nil, false
	}
	bestEnd, ok := closest(best, ns.less(slices.Concat(burstEnd, sureEnd)...))
	return slices.Concat(bestEnd, burstEnd, sureEnd), ok
}

// closest takes one pod after the other, always the one that is closest to what
// is missing still, until nothing is. It returns false if all are not enough.
func closest(pods []*v1.Pod, ns shortage) (end []*v1.Pod, ok bool) {
	left := slices.Clone(pods)
	for len(ns) > 0 {
		if len(left) == 0 {
			return nil, false
		}
		next := slices.MinFunc(left, func(a, b *v1.Pod) int {
			return cmp.Or(cmp.Compare(ns.distance(a), ns.distance(b)), cheaper(a, b))
		})
		ns = ns.less(next)
		end = append(end, next)
		left = slices.DeleteFunc(left, func(p *v1.Pod) bool { return p == next })
	}
	return end, true
}

// cheaper orders pods of which either would do: as upstream has it by what they
// ask for, memory first; where that is the same, the less important, then the
// younger.
func cheaper(a, b *v1.Pod) int {
	return cmp.Or(
		cmp.Compare(requested(a, v1.ResourceMemory), requested(b, v1.ResourceMemory)),
		cmp.Compare(requested(a, v1.ResourceCPU), requested(b, v1.ResourceCPU)),
		cmp.Compare(priorityOf(a), priorityOf(b)),
		b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
		strings.Compare(string(a.UID), string(b.UID)),
	)
}

func priorityOf(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
