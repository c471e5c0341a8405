package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CgroupDriver returns by what the runtime makes its cgroups. known is false for a
// runtime that does not say, as those of before CRI 1.28 do not.
func (r *Runtime) CgroupDriver(ctx context.Context) (driver runtimeapi.CgroupDriver, known bool, err error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if status.Code(err) == codes.Unimplemented {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("ask the runtime's configuration: %w", translate(err))
	}
	linux := got.GetLinux()
	return linux.GetCgroupDriver(), linux != nil, nil
}

// SetPodCIDR tells the runtime the networks of the node's pods, separated by commas. One
// that does not want to know is not told.
func (r *Runtime) SetPodCIDR(ctx context.Context, cidrs string) error {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	_, err := r.runtime.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidrs}},
	})
	if err != nil && status.Code(err) != codes.Unimplemented {
		return fmt.Errorf("tell the runtime the networks of pods: %w", translate(err))
	}
	return nil
}
