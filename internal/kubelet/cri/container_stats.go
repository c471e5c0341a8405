package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStats returns what each container uses, as the runtime has it.
func (r *Runtime) ContainerStats(ctx context.Context) ([]*runtimeapi.ContainerStats, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("list container stats: %w", translate(err))
	}
	return got.GetStats(), nil
}
