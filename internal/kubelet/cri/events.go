package cri

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Events calls take for every container event, one after another, until ctx is
// done or the stream breaks, and returns why. It returns ErrNoEvents if the
// runtime has no such stream. take must not block for long: the runtime drops
// events for those who do not read.
func (r *Runtime) Events(ctx context.Context, take func(*runtimeapi.ContainerEventResponse)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	for err == nil {
		var event *runtimeapi.ContainerEventResponse
		if event, err = stream.Recv(); err == nil {
			take(event)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("container events: the runtime closed the stream")
	case status.Code(err) == codes.Unimplemented:
		return fmt.Errorf("container events: %w", ErrNoEvents)
	default:
		return fmt.Errorf("container events: %w", translate(err))
	}
}
