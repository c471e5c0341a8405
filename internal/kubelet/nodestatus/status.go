package nodestatus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// facts is all that a status is computed from.
type facts struct {
	now       metav1.Time
	has       v1.ResourceList // nil: it could not be read
	info      v1.NodeSystemInfo
	addresses []v1.NodeAddress
	images    []v1.ContainerImage

	deviceCapacity, deviceAllocatable v1.ResourceList
	deviceRemoved                     []string

	pressure []v1.NodeConditionType // of the three, those that the node has
	notReady []error
	handlers []v1.NodeRuntimeHandler
	features *v1.NodeFeatures
	inUse    []v1.UniqueVolumeName // in order
}

// apply writes the facts into a status, leaving what others own in it
// (resources and conditions that we do not know), and returns the reasons of
// the conditions that changed, for events.
func apply(status *v1.NodeStatus, cfg Config, f facts) []string {
	if f.has != nil {
		setResources(status, cfg, f)
	}
	status.Addresses = f.addresses
	status.DaemonEndpoints.KubeletEndpoint.Port = int32(cfg.KubeletPort)
	status.NodeInfo = f.info
	status.Images = f.images
	status.RuntimeHandlers = f.handlers
	status.Features = f.features
	status.DeclaredFeatures = cfg.Features
	status.VolumesInUse = f.inUse // volumesAttached is the controller's that attaches

	var told []string
	for _, c := range conditions(f) {
		if setCondition(status, c.NodeCondition) {
			told = append(told, c.event)
		}
	}
	return told
}

// setResources writes capacity and allocatable. Those of other owners stay, but not
// sizes of huge pages that the machine does not have, nor an extended resource that
// can be allocated without a capacity.
func setResources(status *v1.NodeStatus, cfg Config, f facts) {
	if status.Capacity == nil {
		status.Capacity = v1.ResourceList{}
	}
	if status.Allocatable == nil {
		status.Allocatable = v1.ResourceList{}
	}
	for name := range status.Capacity {
		if _, has := f.has[name]; !has && isHugePages(name) {
			delete(status.Capacity, name)
			delete(status.Allocatable, name)
		}
	}
	maps.Copy(status.Capacity, f.has)
	status.Capacity[v1.ResourcePods] = *resource.NewQuantity(maxPods(cfg, f.has), resource.DecimalSI)
	maps.Copy(status.Capacity, f.deviceCapacity)
	for _, name := range f.deviceRemoved {
		// None, and not absent: it is the plugin's that was here, and nobody else's.
		status.Capacity[v1.ResourceName(name)] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	for name := range status.Allocatable {
		if _, has := status.Capacity[name]; !has && isExtended(name) {
			delete(status.Allocatable, name)
		}
	}
	maps.Copy(status.Allocatable, allocatable(status.Capacity, cfg.Reserved, cfg.Withheld(status.Capacity)))
	maps.Copy(status.Allocatable, f.deviceAllocatable)
}

// maxPods is how many pods the node takes.
func maxPods(cfg Config, has v1.ResourceList) int64 {
	if cfg.PodsPerCore > 0 {
		return min(cfg.MaxPods, cfg.PodsPerCore*has.Cpu().Value())
	}
	return cfg.MaxPods
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// isExtended reports whether a resource is one that Kubernetes itself does not know,
// in a domain of its own.
func isExtended(name v1.ResourceName) bool {
	text := string(name)
	return strings.Contains(text, "/") && !strings.Contains(text, v1.ResourceDefaultNamespacePrefix) && !strings.HasPrefix(text, v1.DefaultResourceRequestsPrefix)
}

// maxNames is how many names of one image are reported, as upstream's.
const maxNames = 5

// largest returns the largest images as they are reported; a negative most is all. Of
// the same size, the one with the greater ID goes first, as upstream has it.
func largest(list []*runtimeapi.Image, most int) []v1.ContainerImage {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(b.GetSize(), a.GetSize()), strings.Compare(b.GetId(), a.GetId()))
	})
	if most >= 0 && most < len(list) {
		list = list[:most]
	}
	var all []v1.ContainerImage
	for _, image := range list {
		names := slices.Concat(image.GetRepoDigests(), image.GetRepoTags())
		all = append(all, v1.ContainerImage{
			Names:     names[:min(len(names), maxNames)],
			SizeBytes: int64(image.GetSize()), //nolint:gosec // not eight exabytes
		})
	}
	return all
}

// allocatable is what pods may ask for of a capacity.
func allocatable(capacity, reserved, withheld v1.ResourceList) v1.ResourceList {
	free := capacity.DeepCopy()
	take := func(name v1.ResourceName, amount resource.Quantity) {
		left, ok := free[name]
		if !ok {
			return
		}
		left.Sub(amount)
		if left.Sign() < 0 {
			left.Set(0)
		}
		free[name] = left
	}
	for _, list := range []v1.ResourceList{reserved, withheld} {
		for name, amount := range list {
			take(name, amount)
		}
	}
	for name, amount := range capacity {
		if isHugePages(name) {
			take(v1.ResourceMemory, amount) // the kernel took them out of it already
		}
	}
	return free
}

// condition is a condition with the reason of the event that tells of it.
type condition struct {
	v1.NodeCondition
	event string
}

// conditions computes the four conditions of a node; Ready is last, as the
// upstream kubelet orders them.
func conditions(f facts) []condition {
	all := []condition{
		pressure(v1.NodeMemoryPressure, f.pressure,
			"KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory",
			"KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"),
		pressure(v1.NodeDiskPressure, f.pressure,
			"KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure",
			"KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
		pressure(v1.NodePIDPressure, f.pressure,
			"KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID",
			"KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"),
		ready(f.notReady),
	}
	for i := range all {
		all[i].LastHeartbeatTime, all[i].LastTransitionTime = f.now, f.now
	}
	return all
}

// pressure is one of the three pressure conditions; the words are the upstream
// kubelet's: reason, message and event where there is pressure, then where not.
func pressure(kind v1.NodeConditionType, has []v1.NodeConditionType, words ...string) condition {
	status := v1.ConditionTrue
	if !slices.Contains(has, kind) {
		status = v1.ConditionFalse
		words = words[3:]
	}
	return condition{v1.NodeCondition{Type: kind, Status: status, Reason: words[0], Message: words[1]}, words[2]}
}

func ready(notReady []error) condition {
	if err := utilerrors.NewAggregate(notReady); err != nil {
		return condition{v1.NodeCondition{
			Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "KubeletNotReady", Message: err.Error(),
		}, "NodeNotReady"}
	}
	return condition{v1.NodeCondition{
		Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
	}, "NodeReady"}
}

// setCondition puts a condition into a status, keeping the time of its last
// transition, and reports whether others are to be told that its status changed: not
// of a new node's readiness, as upstream's kubelet does not.
func setCondition(status *v1.NodeStatus, c v1.NodeCondition) bool {
	i := slices.IndexFunc(status.Conditions, func(have v1.NodeCondition) bool { return have.Type == c.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, c)
		return c.Type != v1.NodeReady
	}
	changed := status.Conditions[i].Status != c.Status
	if !changed {
		c.LastTransitionTime = status.Conditions[i].LastTransitionTime
	}
	status.Conditions[i] = c
	return changed
}

func isReady(node *v1.Node) bool {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == v1.NodeReady {
			return node.Status.Conditions[i].Status == v1.ConditionTrue
		}
	}
	return false
}

// sameStatus compares two statuses but for the times of heartbeats.
func sameStatus(a, b *v1.NodeStatus) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, status := range []*v1.NodeStatus{a, b} {
		for i := range status.Conditions {
			status.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}

// statusPatch computes the patch that makes node's status wanted's, of this
// very Node.
//
// The API merges addresses by type, which cannot hold two of one type, so
// changed addresses are replaced as a whole.
func statusPatch(node, wanted *v1.Node) ([]byte, error) {
	next := node.DeepCopy()
	next.Status = *wanted.Status.DeepCopy()
	replace := len(node.Status.Addresses) > 0 && !slices.Equal(node.Status.Addresses, next.Status.Addresses)
	if replace {
		next.Status.Addresses = node.Status.Addresses
	}
	before, err := json.Marshal(node)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	data, err := strategicpatch.CreateTwoWayMergePatch(before, after, v1.Node{})
	if err != nil {
		return nil, err
	}
	patch := map[string]any{}
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	if replace {
		status, ok := patch["status"].(map[string]any)
		if !ok {
			status = map[string]any{}
			patch["status"] = status
		}
		addresses := []any{map[string]string{"$patch": "replace"}}
		for _, address := range wanted.Status.Addresses {
			addresses = append(addresses, address)
		}
		status["addresses"] = addresses
	}
	if node.UID != "" {
		patch["metadata"] = map[string]any{"uid": node.UID}
	}
	out, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return out, nil
}
