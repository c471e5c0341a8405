package podvolumes

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrWaiting is matched by the errors of volumes that need an API object which
// is missing or not ready. Nobody has to do anything but make the object.
var ErrWaiting = errors.New("waiting for an API object")

// ErrCannotGrow is matched by the error of a volume that cannot have the size that
// its claim wants, however often it is tried: somebody has to ask for less, or
// give it a larger device.
var ErrCannotGrow = errors.New("the volume cannot grow so far")

// ErrGrowsLater is matched by the error of a volume that cannot grow while pods
// have it: it does when the next one gets it.
var ErrGrowsLater = errors.New("the volume cannot grow while it is in use")

// A WaitingError says which object a volume waits for, and why.
type WaitingError struct {
	Ref    Ref
	Volume string // as the pod names it
	Err    error
}

func (e *WaitingError) Error() string {
	return fmt.Sprintf("waiting for %s (%s): %s", e.Ref, Describe(e.Volume), e.Why())
}

// Why returns what is the matter with the object.
func (e *WaitingError) Why() string {
	// A token can also lack its pod, and a certificate what it is asked for with.
	if apierrors.IsNotFound(e.Err) && e.Ref.Kind != RefServiceAccount && e.Ref.Kind != RefPodCertificate {
		return "not found"
	}
	return e.Err.Error()
}

// Is matches ErrWaiting.
func (e *WaitingError) Is(target error) bool { return target == ErrWaiting }

func (e *WaitingError) Unwrap() error { return e.Err }

// Waiting returns each volume's error within err that waits for an object.
func Waiting(err error) []*WaitingError {
	switch e := err.(type) { //nolint:errorlint // it takes the tree apart itself
	case nil:
		return nil
	case *WaitingError:
		return []*WaitingError{e}
	case interface{ Unwrap() []error }:
		var all []*WaitingError
		for _, part := range e.Unwrap() {
			all = append(all, Waiting(part)...)
		}
		return all
	}
	return Waiting(errors.Unwrap(err))
}
