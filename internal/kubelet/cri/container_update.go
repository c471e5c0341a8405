package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdateResources changes what a running container may use. Page sizes stay as
// they were when it was created.
func (r *Runtime) UpdateResources(ctx context.Context, id string, resources *runtimeapi.LinuxContainerResources) error {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	_, err := r.runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id,
		Linux: &runtimeapi.LinuxContainerResources{
			CpuPeriod: resources.GetCpuPeriod(), CpuQuota: resources.GetCpuQuota(), CpuShares: resources.GetCpuShares(),
			MemoryLimitInBytes: resources.GetMemoryLimitInBytes(), OomScoreAdj: resources.GetOomScoreAdj(),
			Unified: resources.GetUnified(),
		},
	})
	if err != nil {
		return fmt.Errorf("update resources of container %q: %w", id, translate(err))
	}
	return nil
}

// MemoryUsage returns how many bytes of memory a running container uses.
func (r *Runtime) MemoryUsage(ctx context.Context, id string) (uint64, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		return 0, fmt.Errorf("read statistics of container %q: %w", id, translate(err))
	}
	memory := got.GetStats().GetMemory()
	if memory.GetUsageBytes() != nil {
		return memory.GetUsageBytes().GetValue(), nil
	}
	if memory.GetWorkingSetBytes() == nil {
		return 0, fmt.Errorf("read statistics of container %q: the runtime tells no memory usage", id)
	}
	return memory.GetWorkingSetBytes().GetValue(), nil // all that older runtimes tell
}
