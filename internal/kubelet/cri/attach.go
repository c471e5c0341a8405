package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Attach prepares access to the streams of a container's first process and
// returns the URL at which they are served, once and for a short time.
func (r *Runtime) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (url string, err error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.runtime.Attach(ctx, req)
	if err != nil {
		return "", fmt.Errorf("attach to container %q: %w", req.GetContainerId(), translate(err))
	}
	if got.GetUrl() == "" {
		return "", fmt.Errorf("attach to container %q: the runtime gave no URL", req.GetContainerId())
	}
	return got.GetUrl(), nil
}
