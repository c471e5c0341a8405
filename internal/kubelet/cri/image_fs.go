package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageFS returns the filesystems that hold images and containers' writable
// layers, and what the runtime uses of them.
func (r *Runtime) ImageFS(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask for the image filesystem: %w", translate(err))
	}
	return got, nil
}
