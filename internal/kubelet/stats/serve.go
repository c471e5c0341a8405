package stats

import (
	"context"
	"encoding/json"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/cadvisormetrics"
	"github.com/holdfast-dev/holdfast/internal/resourcemetrics"
)

// SummaryJSON returns the last collection as upstream's Summary, with the health of
// volumes. cpuAndMemory leaves out all but processor, memory and swap. The caller must
// not change it.
func (c *Collector) SummaryJSON(ctx context.Context, cpuAndMemory bool) ([]byte, error) {
	last, err := c.Last(ctx)
	if err != nil {
		return nil, err
	}
	if cpuAndMemory {
		e := &last.small
		e.once.Do(func() { e.data, e.err = json.Marshal(onlyCPUAndMemory(last.Summary)) })
		return e.data, e.err
	}
	e := &last.full
	e.once.Do(func() { e.data, e.err = json.Marshal(withHealth(last)) })
	return e.data, e.err
}

// ResourceMetrics returns the last collection as /metrics/resource. The caller must
// not change it.
func (c *Collector) ResourceMetrics(ctx context.Context) ([]byte, error) {
	last, err := c.Last(ctx)
	if err != nil {
		return nil, err
	}
	e := &last.resource
	e.once.Do(func() {
		e.data = resourcemetrics.Append(make([]byte, 0, resourceBytes(last.Summary)), last.Summary, last.Failed)
	})
	return e.data, nil
}

// resourceBytes is about as long as the answer of /metrics/resource will be.
func resourceBytes(s *statsapi.Summary) int {
	const heads, perPod, perContainer = 4096, 400, 500
	n := heads
	for i := range s.Pods {
		n += perPod + perContainer*len(s.Pods[i].Containers)
	}
	return n
}

// CadvisorMetrics returns /metrics/cadvisor, of the time of the last collection or a little
// later. The caller must not change it.
func (c *Collector) CadvisorMetrics(ctx context.Context) ([]byte, error) {
	last, err := c.Last(ctx)
	if err != nil {
		return nil, err
	}
	e := &last.cadvisor
	e.once.Do(func() { e.data = cadvisormetrics.Append(nil, c.machine(), c.groups(last)) })
	return e.data, nil
}

// onlyCPUAndMemory returns a Summary without all that is not asked for often.
func onlyCPUAndMemory(s *statsapi.Summary) *statsapi.Summary {
	node := &s.Node
	out := &statsapi.Summary{
		Node: statsapi.NodeStats{
			NodeName: node.NodeName, StartTime: node.StartTime, CPU: node.CPU, Memory: node.Memory, Swap: node.Swap,
			SystemContainers: smallContainers(node.SystemContainers),
		},
		Pods: make([]statsapi.PodStats, len(s.Pods)),
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		out.Pods[i] = statsapi.PodStats{
			PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU, Memory: p.Memory, Swap: p.Swap, Containers: smallContainers(p.Containers),
		}
	}
	return out
}

func smallContainers(all []statsapi.ContainerStats) []statsapi.ContainerStats {
	out := make([]statsapi.ContainerStats, len(all))
	for i := range all {
		c := &all[i]
		out[i] = statsapi.ContainerStats{Name: c.Name, StartTime: c.StartTime, CPU: c.CPU, Memory: c.Memory, Swap: c.Swap}
	}
	return out
}
