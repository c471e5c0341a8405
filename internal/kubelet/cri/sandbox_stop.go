package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopSandbox ends everything that runs in the sandbox and gives back its network. It
// returns when the runtime says that the sandbox has ended. A sandbox that is not there is no error.
func (r *Runtime) StopSandbox(ctx context.Context, id string) error {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	_, err := r.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err := gone(translate(err)); err != nil {
		return fmt.Errorf("stop sandbox %q: %w", id, err)
	}
	if err := settle(ctx, func(ctx context.Context) (bool, error) { return r.sandboxRuns(ctx, id) }); err != nil {
		return fmt.Errorf("see sandbox %q stopped: %w", id, err)
	}
	return nil
}
