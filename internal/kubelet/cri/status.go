package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Status returns the conditions of the runtime, such as RuntimeReady and
// NetworkReady, and its handlers.
func (r *Runtime) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the runtime's status: %w", translate(err))
	}
	return got, nil
}
