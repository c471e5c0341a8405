package podvolumes

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrWaiting is matched by the errors of volumes that need an API object which
// is missing or not ready. Nobody has to do anything but make the object.
var ErrWaiting = errors.New("waiting for an API object")

// A WaitingError says which object a volume waits for, and why.
type WaitingError struct {
	Ref    Ref
	Volume string // as the pod names it
	Err    error
}

func (e *WaitingError) Error() string {
	why := e.Err.Error()
	if apierrors.IsNotFound(e.Err) && e.Ref.Kind != RefServiceAccount { // a token can also lack its pod
		why = "not found"
	}
	return fmt.Sprintf("waiting for %s (%s): %s", e.Ref, Describe(e.Volume), why)
}

// Is matches ErrWaiting.
func (e *WaitingError) Is(target error) bool { return target == ErrWaiting }

func (e *WaitingError) Unwrap() error { return e.Err }
