package podfiles

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
)

// The kernel's bounds of CPU shares and of a CFS quota.
const (
	minShares = 2
	maxShares = 262144
	minQuota  = time.Millisecond
)

// OOM scores, as the upstream kubelet gives them: guaranteed containers last,
// best effort first, burstable between by the part of memory they ask for.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
)

// Resources returns a container's limits as the runtime takes them, at its
// creation and later.
func (n *Node) Resources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	cpu, memory := *c.Resources.Limits.Cpu(), *c.Resources.Limits.Memory()
	if r := pod.Spec.Resources; r != nil {
		// A container without a limit of its own may use the whole pod's.
		if cpu.IsZero() {
			cpu = *r.Limits.Cpu()
		}
		if memory.IsZero() {
			memory = *r.Limits.Memory()
		}
	}
	request, ok := c.Resources.Requests[v1.ResourceCPU]
	if !ok {
		request = cpu
	}
	out := n.linuxResources(request, cpu, memory)
	out.OomScoreAdj = n.oomScore(pod, c)
	out.HugepageLimits = hugepages(c.Resources.Limits)
	if n.CgroupV2 && !n.SingleProcessOOMKill {
		// One process of a container over its limit ends all of them, so that
		// none is left without its peers.
		out.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return out
}

// sandboxResources returns what the pod's containers may use together, and
// what the runtime class adds.
func (n *Node) sandboxResources(pod *v1.Pod) (all, overhead *runtimeapi.LinuxContainerResources) {
	opts := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	limits := resourcehelper.PodLimits(pod, opts)
	request, ok := resourcehelper.PodRequests(pod, opts)[v1.ResourceCPU]
	if !ok {
		request = *limits.Cpu()
	}
	all = n.linuxResources(request, *limits.Cpu(), *limits.Memory())
	overhead = &runtimeapi.LinuxContainerResources{}
	if o := pod.Spec.Overhead; o != nil {
		overhead = n.linuxResources(*o.Cpu(), *o.Cpu(), *o.Memory())
	}
	return all, overhead
}

func (n *Node) linuxResources(cpuRequest, cpuLimit, memoryLimit resource.Quantity) *runtimeapi.LinuxContainerResources {
	out := &runtimeapi.LinuxContainerResources{
		CpuShares:          shares(cpuRequest.MilliValue()),
		MemoryLimitInBytes: memoryLimit.Value(),
	}
	if !n.NoCPUQuota {
		out.CpuPeriod = n.cpuPeriod().Microseconds()
		out.CpuQuota = quota(cpuLimit.MilliValue(), n.cpuPeriod())
	}
	return out
}

func shares(milli int64) int64 {
	return min(max(milli*1024/1000, minShares), maxShares)
}

// quota returns a CFS quota in microseconds; zero is no limit.
func quota(milli int64, period time.Duration) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period.Microseconds()/1000, minQuota.Microseconds())
}

func (n *Node) oomScore(pod *v1.Pod, c *v1.Container) int64 {
	const nodeCritical = 2000001000 // priority of system-node-critical
	if pod.Spec.Priority != nil && *pod.Spec.Priority >= nodeCritical {
		return oomGuaranteed
	}
	switch qos.ComputePodQOS(pod) {
	case v1.PodQOSGuaranteed:
		return oomGuaranteed
	case v1.PodQOSBestEffort:
		return oomBestEffort
	default:
	}
	if n.MemoryCapacity == 0 {
		return oomBestEffort - 1
	}
	spare := spareRequest(pod)
	score := n.burstable(c.Resources.Requests.Memory().Value() + spare)
	if IsSidecar(c) && slices.ContainsFunc(pod.Spec.InitContainers, func(i v1.Container) bool { return i.Name == c.Name }) {
		// A sidecar is not killed before the containers that it serves.
		least := slices.MinFunc(pod.Spec.Containers, func(a, b v1.Container) int {
			return a.Resources.Requests.Memory().Cmp(*b.Resources.Requests.Memory())
		})
		score = min(score, n.burstable(least.Resources.Requests.Memory().Value()+spare))
	}
	return min(max(score, oomBestEffort+oomGuaranteed), oomBestEffort-1)
}

func (n *Node) burstable(request int64) int64 {
	return oomBestEffort - oomBestEffort*request/n.MemoryCapacity
}

// spareRequest returns each container's part, in bytes, of the memory that the
// pod requests beyond what its containers do.
func spareRequest(pod *v1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(pod) {
		return 0
	}
	var sum int64
	count := int64(len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		sum += pod.Spec.Containers[i].Resources.Requests.Memory().Value()
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; IsSidecar(c) {
			sum += c.Resources.Requests.Memory().Value()
			count++
		}
	}
	return max(0, pod.Spec.Resources.Requests.Memory().Value()-sum) / count
}

// hugepages returns the limits of the page sizes that the container names.
func hugepages(limits v1.ResourceList) []*runtimeapi.HugepageLimit {
	var out []*runtimeapi.HugepageLimit
	for name, q := range limits {
		size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		// The kernel says 2MB where the API says 2Mi.
		out = append(out, &runtimeapi.HugepageLimit{PageSize: strings.TrimSuffix(size, "i") + "B", Limit: uint64(max(0, q.Value()))})
	}
	slices.SortFunc(out, func(a, b *runtimeapi.HugepageLimit) int { return strings.Compare(a.GetPageSize(), b.GetPageSize()) })
	return out
}
