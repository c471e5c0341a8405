package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveContainer removes a container, killing it if it runs. A container that
// is not there is no error.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	_, err := r.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	if err := gone(translate(err)); err != nil {
		return fmt.Errorf("remove container %q: %w", id, err)
	}
	return nil
}
