package cri

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopContainer asks the container to end and kills it after grace, which
// counts in whole seconds, rounded up; 0 kills at once. It returns when the
// container has ended and the runtime says so. A container that is not there is
// no error.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout+max(0, grace))
	defer cancel()
	seconds := int64(max(0, grace+time.Second-1) / time.Second)
	_, err := r.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds})
	if err := gone(translate(err)); err != nil {
		return fmt.Errorf("stop container %q: %w", id, err)
	}
	if err := settle(ctx, func(ctx context.Context) (bool, error) { return r.containerRuns(ctx, id) }); err != nil {
		return fmt.Errorf("see container %q stopped: %w", id, err)
	}
	return nil
}
