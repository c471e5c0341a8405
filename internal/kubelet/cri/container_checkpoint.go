package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CheckpointContainer has the runtime write the state of a running container into
// a file. timeout is the runtime's, in whole seconds; 0: that of all calls.
func (r *Runtime) CheckpointContainer(ctx context.Context, id, file string, timeout time.Duration) error {
	if timeout == 0 {
		timeout = r.timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+r.timeout) // the runtime's own comes first
	defer cancel()
	_, err := r.runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{
		ContainerId: id, Location: file, Timeout: int64(timeout / time.Second),
	})
	switch {
	case err == nil:
		return nil
	case status.Code(err) == codes.Unimplemented:
		return errors.New("the container runtime cannot checkpoint containers")
	default:
		return fmt.Errorf("checkpoint container %q: %w", id, translate(err))
	}
}
