package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ReopenLog makes the runtime open the container's log file anew, after it was
// renamed.
func (r *Runtime) ReopenLog(ctx context.Context, id string) error {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	if _, err := r.runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("reopen the log of container %q: %w", id, translate(err))
	}
	return nil
}
