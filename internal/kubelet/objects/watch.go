package objects

import (
	"context"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/retry"
)

// firstRetry is the pause after the first failure; it doubles up to Config.MaxRetry.
const firstRetry = 200 * time.Millisecond

// errFixed ends the watch of an object that never changes.
var errFixed = errors.New("immutable")

// watch follows one object until nobody holds it or ctx is done: a list, then a
// watch from there, again when it breaks; or one read after the other. It is
// client-go's reflector for one object, without its store and its second and third
// goroutine.
func (s *Store) watch(ctx context.Context, e *entry) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	e.cancel = cancel
	dropped := len(e.holders) == 0
	s.mu.Unlock()
	if dropped {
		return
	}
	log := s.cfg.Log.With("object", e.ref.String())
	pause, failing := firstRetry, false
	for ctx.Err() == nil {
		err := s.learn(ctx, e)
		switch {
		case errors.Is(err, errFixed), ctx.Err() != nil:
			return
		case err == nil: // the server ended the watch, as it does every few minutes
			pause, failing = firstRetry, false
			continue
		case apierrors.IsForbidden(err) && s.poll(ctx, e) == nil:
			pause, failing = firstRetry, false
			continue
		}
		s.unseen(e, err)
		if !failing {
			failing = true
			log.Warn("object cannot be followed; using what was last seen", "err", err)
		}
		if !retry.Sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, s.cfg.MaxRetry)
	}
}

// follow lists the object and watches it. It returns nil if the watch worked
// and then ended.
func (s *Store) follow(ctx context.Context, e *entry) error {
	c := s.client(e.ref)
	items, version, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("list %s: %w", e.ref, err)
	}
	found := pick(e.ref, items)
	s.seen(e, found)
	if immutable(found) {
		return errFixed
	}
	w, err := c.watch(ctx, version)
	if err != nil {
		return fmt.Errorf("watch %s: %w", e.ref, err)
	}
	defer w.Stop()
	started := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-w.ResultChan():
			if !open {
				if time.Since(started) < time.Second {
					return fmt.Errorf("watch %s: ended at once", e.ref)
				}
				return nil
			}
			if err := s.event(e, event); err != nil {
				return err
			}
		}
	}
}

// pick returns what an entry holds of what was listed; nil: it is not there.
func pick(ref podvolumes.Ref, items []runtime.Object) runtime.Object {
	if ref == podvolumes.TrustBundles {
		return bundles(items)
	}
	for _, item := range items {
		if nameOf(item) == ref.Name {
			return item
		}
	}
	return nil
}

func (s *Store) event(e *entry, event watch.Event) error {
	if bundle, ok := event.Object.(*certificatesv1.ClusterTrustBundle); ok && event.Type != watch.Bookmark {
		s.bundleEvent(e, event.Type, bundle)
		return nil
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		if nameOf(event.Object) != e.ref.Name {
			return nil
		}
		s.seen(e, event.Object)
		if immutable(event.Object) {
			return errFixed
		}
	case watch.Deleted:
		if nameOf(event.Object) == e.ref.Name {
			s.seen(e, nil)
		}
	case watch.Error:
		err := apierrors.FromObject(event.Object)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return nil // list again
		}
		return fmt.Errorf("watch %s: %w", e.ref, err)
	case watch.Bookmark:
	}
	return nil
}

// poll reads an object once that may not be listed, and waits a while.
func (s *Store) poll(ctx context.Context, e *entry) error {
	object, err := s.client(e.ref).get(ctx)
	if apierrors.IsNotFound(err) {
		object, err = nil, nil
	}
	if err != nil {
		return err
	}
	s.seen(e, object)
	retry.Sleep(ctx, s.cfg.Poll)
	return nil
}

func nameOf(object runtime.Object) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetName()
}

// sameVersion reports whether two states of an object are one.
func sameVersion(a, b runtime.Object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	one, err1 := meta.Accessor(a)
	two, err2 := meta.Accessor(b)
	return errors.Join(err1, err2) == nil && one.GetUID() == two.GetUID() && one.GetResourceVersion() == two.GetResourceVersion() && one.GetResourceVersion() != ""
}

func immutable(object runtime.Object) bool {
	switch o := object.(type) {
	case *v1.ConfigMap:
		return o.Immutable != nil && *o.Immutable
	case *v1.Secret:
		return o.Immutable != nil && *o.Immutable
	}
	return false
}
