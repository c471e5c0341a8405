package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer creates a container in a sandbox, whose own configuration
// the runtime wants again, and returns its ID.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (id string, err error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId:  sandboxID,
		Config:        config,
		SandboxConfig: sandbox,
	})
	if err != nil {
		return "", fmt.Errorf("create container %q: %w", config.GetMetadata().GetName(), translate(err))
	}
	return got.GetContainerId(), nil
}
