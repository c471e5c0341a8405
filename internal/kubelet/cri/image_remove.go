package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveImage removes an image with all its names. One that is not there is no
// error.
func (r *Runtime) RemoveImage(ctx context.Context, ref string) error {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	_, err := r.images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err := gone(translate(err)); err != nil {
		return fmt.Errorf("remove image %q: %w", ref, err)
	}
	return nil
}
