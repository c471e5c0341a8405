package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image returns the image that ref names on this machine, or nil if there is
// none.
func (r *Runtime) Image(ctx context.Context, ref string) (*runtimeapi.Image, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err := gone(translate(err)); err != nil {
		return nil, fmt.Errorf("look for image %q: %w", ref, err)
	}
	return got.GetImage(), nil
}
