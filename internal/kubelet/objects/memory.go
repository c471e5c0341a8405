package objects

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// memory is what an earlier run kept. An error that matches fs.ErrNotExist says
// that this is nothing. Calls may be concurrent, and may read the disk.
type memory interface {
	Object(ref podvolumes.Ref) (runtime.Object, error)
	Token(namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
	Services(namespace string) ([]*v1.Service, error)
}

// silent reports whether an error means that the API server did not answer, or
// only to say that it cannot now. That it does not have an object, or does not
// give it to this node any more, is an answer.
func silent(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err)
}

// patience returns a channel that tells when to stop waiting for the answer that
// known tells of and that was wanted then, never where nothing else could serve.
func (s *Store) patience(known <-chan struct{}, then time.Time) (over <-chan time.Time, stop func()) {
	if s.cfg.Memory == nil {
		return nil, func() {}
	}
	select {
	case <-known:
		return nil, func() {} // or that would be one of two things to choose from
	default:
	}
	timer := time.NewTimer(s.cfg.Patience - time.Since(then))
	return timer.C, func() { timer.Stop() }
}

// remembered returns what an earlier run kept of an object, in place of an error
// of the API server.
func (s *Store) remembered(ref podvolumes.Ref, err error) (runtime.Object, error) {
	if s.cfg.Memory == nil || !silent(err) {
		return nil, err
	}
	object, kept := s.cfg.Memory.Object(ref)
	if kept != nil {
		return nil, both(err, kept)
	}
	return object, nil
}

// both joins why the API server does not give an object with why memory does not,
// unless that is only that there is none.
func both(err, kept error) error {
	if errors.Is(kept, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w; %w", err, kept)
}

// Seen returns every object that somebody holds and of which the API server has
// told, if ever so long ago; nil stands for one that is not there.
func (s *Store) Seen() map[podvolumes.Ref]runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := make(map[podvolumes.Ref]runtime.Object, len(s.mu.entries))
	for ref, e := range s.mu.entries {
		if e.synced {
			seen[ref] = e.object
		}
	}
	return seen
}

// Tokens returns the tokens that are kept for pods, by what they are kept as.
func (s *Store) Tokens() map[checkpointfile.Key]*authenticationv1.TokenRequest {
	s.tokens.mu.Lock()
	defer s.tokens.mu.Unlock()
	return maps.Clone(s.tokens.mu.kept)
}

// SeenServices returns the services that pods of a namespace may be told of, as
// Services does, without waiting; ok is false before the first answer of the API
// server. edition is another after each change of any service.
func (s *Store) SeenServices(namespace string) (list []*v1.Service, edition int64, ok bool) {
	edition = s.services.store.edition.Load()
	if !s.services.isSynced() {
		return nil, 0, false
	}
	list, err := s.services.of(namespace)
	return list, edition, err == nil
}
