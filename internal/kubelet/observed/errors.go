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
	// ErrRegistryUnavailable is returned when a pull found no registry that
	// answers, where the runtime tells that apart.
	ErrRegistryUnavailable = errors.New("registry is not available")
	// ErrSignatureValidation is returned when an image's signature is not one that
	// the runtime trusts.
	ErrSignatureValidation = errors.New("signature validation failed")
)
