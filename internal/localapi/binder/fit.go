package binder

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/resource"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Why a pod may not run on the node: the scheduler's own words, which people
// search for.
const (
	reasonSelector      = "node(s) didn't match Pod's node affinity/selector"
	reasonUnschedulable = "node(s) were unschedulable"
	reasonPorts         = "node(s) didn't have free ports for the requested pod ports"
	reasonPods          = "Too many pods"
	reasonAffinity      = "node(s) didn't match pod affinity rules"
	reasonAntiAffinity  = "node(s) didn't match pod anti-affinity rules"
	reasonExistingAnti  = "node(s) didn't satisfy existing pods anti-affinity rules"
	reasonSpread        = "node(s) didn't match pod topology spread constraints"
	reasonOncePod       = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
	reasonVolumeNode    = "node(s) didn't match PersistentVolume's node affinity"
	reasonNoVolume      = "node(s) didn't find available persistent volumes to bind"
	reasonVolumeGone    = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
)

// world is what one pass sees.
type world struct {
	node       *corev1.Node
	pods       []*corev1.Pod         // on the node, and not ended
	namespaces map[string]labels.Set // the labels of each
	claims     map[string]*corev1.PersistentVolumeClaim
	volumes    []*corev1.PersistentVolume
	classes    map[string]bool // of each class: does it wait for the first consumer
	static     map[string]bool // of each class: does nothing provision for it
}

// fit returns why pod may not run on the node, but for its volumes.
func fit(pod *corev1.Pod, w *world) []string {
	var why []string
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(w.node); err != nil || !ok {
		why = append(why, reasonSelector)
	}
	why = append(why, taints(pod, w.node)...)
	why = append(why, resources(pod, w)...)
	if portsTaken(pod, w.pods) {
		why = append(why, reasonPorts)
	}
	return append(why, among(pod, w)...)
}

func taints(pod *corev1.Pod, node *corev1.Node) []string {
	logger := klog.TODO() // upstream's helper logs only tolerations that validation refuses
	if node.Spec.Unschedulable {
		cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
		if !schedulinghelpers.TolerationsTolerateTaint(logger, pod.Spec.Tolerations, &cordon, false) {
			return []string{reasonUnschedulable}
		}
	}
	taint, found := schedulinghelpers.FindMatchingUntoleratedTaint(logger, node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
	if found {
		return []string{fmt.Sprintf("node(s) had untolerated taint(s) {%s: %s}", taint.Key, taint.Value)}
	}
	return nil
}

// resources compares what the pod asks for with what the others leave.
func resources(pod *corev1.Pod, w *world) []string {
	free := w.node.Status.Allocatable.DeepCopy()
	if free == nil {
		return nil // the kubelet has not said yet; it admits pods itself
	}
	var why []string
	if limit, ok := free[corev1.ResourcePods]; ok && int64(len(w.pods)) >= limit.Value() {
		why = append(why, reasonPods)
	}
	for _, other := range w.pods {
		for name, quantity := range resource.PodRequests(other, resource.PodResourcesOptions{UseStatusResources: true}) {
			left := free[name]
			left.Sub(quantity)
			free[name] = left
		}
	}
	wants := resource.PodRequests(pod, resource.PodResourcesOptions{})
	for _, name := range sortedNames(wants) {
		quantity, left := wants[name], free[name]
		if quantity.Cmp(apiresource.Quantity{}) > 0 && quantity.Cmp(left) > 0 {
			why = append(why, "Insufficient "+string(name))
		}
	}
	return why
}

func sortedNames(list corev1.ResourceList) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// hostPort is one port of the host that a pod takes.
type hostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

func portsTaken(pod *corev1.Pod, others []*corev1.Pod) bool {
	wanted := hostPorts(pod)
	for _, other := range others {
		for _, taken := range hostPorts(other) {
			if slices.ContainsFunc(wanted, taken.conflicts) {
				return true
			}
		}
	}
	return false
}

func hostPorts(pod *corev1.Pod) []hostPort {
	var ports []hostPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				ports = append(ports, hostPort{p.HostIP, p.Protocol, p.HostPort})
			}
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if always := pod.Spec.InitContainers[i].RestartPolicy; always != nil && *always == corev1.ContainerRestartPolicyAlways {
			add(&pod.Spec.InitContainers[i])
		}
	}
	return ports
}

// conflicts reports whether two pods cannot have p and q.
func (p hostPort) conflicts(q hostPort) bool {
	return p.port == q.port && p.protocol == q.protocol && (p.ip == q.ip || p.any() || q.any())
}

func (p hostPort) any() bool { return p.ip == "" || p.ip == "0.0.0.0" }
