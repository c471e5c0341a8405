package observed

import "errors"

// What the runtime's errors are translated to; compare with errors.Is. A call
// that ran out of time is context.DeadlineExceeded.
var (
	// ErrNotFound is returned when a call names a sandbox, container or image
	// that the runtime does not have.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable is returned when nobody answers at the runtime's socket.
	ErrUnavailable = errors.New("container runtime is not available")
	// ErrNoEvents is returned when the runtime has no stream of container
	// events, as containerd before 1.7.
	ErrNoEvents = errors.New("container runtime has no event stream")
)
