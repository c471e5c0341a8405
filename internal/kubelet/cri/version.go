package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version returns the name and version of the runtime.
func (r *Runtime) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the runtime's version: %w", translate(err))
	}
	return got, nil
}
