package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PortForward prepares connections to ports of a sandbox and returns the URL
// at which they are served, once and for a short time.
func (r *Runtime) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (url string, err error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.runtime.PortForward(ctx, req)
	if err != nil {
		return "", fmt.Errorf("forward ports of sandbox %q: %w", req.GetPodSandboxId(), translate(err))
	}
	if got.GetUrl() == "" {
		return "", fmt.Errorf("forward ports of sandbox %q: the runtime gave no URL", req.GetPodSandboxId())
	}
	return got.GetUrl(), nil
}
