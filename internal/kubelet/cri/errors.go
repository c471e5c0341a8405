package cri

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// A callError is what the runtime answered, in its own words, with the error
// of ours that it means.
type callError struct {
	text string
	kind error // nil: none of ours
}

func (e *callError) Error() string { return e.text }
func (e *callError) Unwrap() error { return e.kind }

// translate turns an error of gRPC into ours. It drops the "rpc error: code"
// that says nothing to whoever reads it in an event.
func translate(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	e := &callError{text: s.Message()}
	switch s.Code() {
	case codes.NotFound:
		e.kind = ErrNotFound
	case codes.Unavailable:
		e.kind = ErrUnavailable
	case codes.DeadlineExceeded:
		e.kind = context.DeadlineExceeded
	case codes.Canceled:
		e.kind = context.Canceled
	default:
		e.kind = pullErrors(e.text)
	}
	if e.text == "" {
		e.text = s.Code().String()
	}
	return e
}

// pullErrors tells by the beginning of a text, as CRI has it, which of its two
// errors of pulls it is.
func pullErrors(text string) error {
	switch {
	case strings.HasPrefix(text, crierrors.ErrRegistryUnavailable.Error()):
		return ErrRegistryUnavailable
	case strings.HasPrefix(text, crierrors.ErrSignatureValidationFailed.Error()):
		return ErrSignatureValidation
	default:
		return nil
	}
}

// gone returns nil for the error that says that a thing to be stopped or
// removed is not there.
func gone(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
