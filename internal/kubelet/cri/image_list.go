package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images lists the images on this machine.
func (r *Runtime) Images(ctx context.Context) ([]*runtimeapi.Image, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", translate(err))
	}
	return got.GetImages(), nil
}
