package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exec prepares a command in a container and returns the URL at which its
// streams are served, once and for a short time.
func (r *Runtime) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (url string, err error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.runtime.Exec(ctx, req)
	if err != nil {
		return "", fmt.Errorf("prepare a command in container %q: %w", req.GetContainerId(), translate(err))
	}
	if got.GetUrl() == "" {
		return "", fmt.Errorf("prepare a command in container %q: the runtime gave no URL", req.GetContainerId())
	}
	return got.GetUrl(), nil
}
