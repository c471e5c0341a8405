package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunSandbox creates and starts a sandbox with the runtime's handler of that
// name, empty for its default, and returns its ID. It takes up to twice the
// timeout, since the network is set up in it.
func (r *Runtime) RunSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*r.timeout)
	defer cancel()
	got, err := r.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return "", fmt.Errorf("run sandbox of pod %s/%s: %w", config.GetMetadata().GetNamespace(), config.GetMetadata().GetName(), translate(err))
	}
	return got.GetPodSandboxId(), nil
}
