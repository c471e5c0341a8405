package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StartContainer starts a created container. The end of ctx does not break off a
// start within its first seconds.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	ctx, cancel := throughout(ctx, r.timeout)
	defer cancel()
	if _, err := r.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("start container %q: %w", id, translate(err))
	}
	return nil
}
