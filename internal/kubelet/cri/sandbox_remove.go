package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveSandbox removes the sandbox and its containers.
// A sandbox that is not there is no error.
func (r *Runtime) RemoveSandbox(ctx context.Context, id string) error {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	_, err := r.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if err := gone(translate(err)); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", id, err)
	}
	return nil
}
