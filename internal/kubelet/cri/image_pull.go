package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pull fetches an image and returns the runtime's own reference to it. auth
// may be nil; sandbox is the configuration of the pod that wants the image.
func (r *Runtime) Pull(ctx context.Context, ref string, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (imageRef string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.pull)
	defer cancel()
	got, err := r.images.PullImage(ctx, &runtimeapi.PullImageRequest{
		Image:         &runtimeapi.ImageSpec{Image: ref},
		Auth:          auth,
		SandboxConfig: sandbox,
	})
	if err != nil {
		return "", fmt.Errorf("pull %q: %w", ref, translate(err))
	}
	if got.GetImageRef() == "" {
		return "", fmt.Errorf("pull %q: the runtime gave no reference to the image", ref)
	}
	return got.GetImageRef(), nil
}
