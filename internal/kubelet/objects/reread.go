package objects

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// rereads reports whether an object is read from time to time and not watched.
func (s *Store) rereads(ref podvolumes.Ref) bool {
	return (ref.Kind == podvolumes.RefConfigMap || ref.Kind == podvolumes.RefSecret) &&
		s.cfg.Strategy != kubeletconfig.WatchChangeDetectionStrategy
}

// asksEachTime reports whether every read of an object asks the API server.
func (s *Store) asksEachTime(ref podvolumes.Ref) bool {
	return s.rereads(ref) && s.cfg.Strategy == kubeletconfig.GetChangeDetectionStrategy
}

// wantAgainLocked has reads wait for an answer that is asked for from now on. A
// pod that is new is made after what it refers to, so it must not get an
// answer from before.
func (e *entry) wantAgainLocked() {
	select {
	case <-e.known:
		e.known = make(chan struct{})
	default: // readers wait already
	}
	e.born, e.asked = time.Now(), false
	e.again.Ring()
}

// learn asks about an object in the way of its kind. It returns nil once there is
// time to do so again.
func (s *Store) learn(ctx context.Context, e *entry) error {
	switch {
	case s.rereads(e.ref):
		return s.reread(ctx, e)
	case s.cfg.PollClaims && (e.ref.Kind == podvolumes.RefClaim || e.ref.Kind == podvolumes.RefPersistentVolume):
		return s.poll(ctx, e)
	default:
		return s.follow(ctx, e)
	}
}

// reread reads an object once and waits until that is too old.
func (s *Store) reread(ctx context.Context, e *entry) error {
	s.mu.Lock()
	e.asked = true
	s.mu.Unlock()
	object, err := s.client(e.ref).get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		s.seen(e, nil)
	case err != nil:
		return fmt.Errorf("read %s: %w", e.ref, err)
	default:
		s.seen(e, object)
		if immutable(object) {
			return errFixed
		}
	}
	old := time.NewTimer(s.cfg.Age())
	defer old.Stop()
	select {
	case <-ctx.Done():
	case <-old.C:
	case <-e.again:
	}
	return nil
}
