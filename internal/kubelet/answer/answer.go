// Package answer waits for what somebody else writes into one object of the API, as a
// signer does into a request for a certificate.
package answer

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// A Client lists and watches objects of one kind, as typed clients do.
type Client[L List] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// A List is a typed list of objects.
type List interface {
	runtime.Object
	metav1.ListInterface
}

// A Question is the object whose answer is waited for.
type Question[T metav1.Object] struct {
	What     string // kind and name, for errors
	Name     string
	Selector string // of fields; it selects the object, and may select more
	// Answered reports whether the answer is there. Its error ends the waiting.
	Answered func(T) (bool, error)
	// Deleted is the error for an object that is not there, or goes.
	Deleted error
}

// Await returns the object once it is answered, however long that takes. A watch
// that ends is begun anew; a request that fails is an error.
func Await[L List, T metav1.Object](ctx context.Context, client Client[L], q Question[T]) (T, error) {
	for {
		list, err := client.List(ctx, metav1.ListOptions{FieldSelector: q.Selector})
		if err != nil {
			return q.none(), fmt.Errorf("read %s: %w", q.What, err)
		}
		if object, done, err := q.find(list); done || err != nil {
			return object, err
		}
		w, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: q.Selector, ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			return q.none(), fmt.Errorf("watch %s: %w", q.What, err)
		}
		object, done, err := q.follow(ctx, w)
		w.Stop()
		if done || err != nil {
			return object, err
		}
	}
}

func (Question[T]) none() (none T) { return none }

// find looks for the object in a list; one that is not there is deleted.
func (q Question[T]) find(list runtime.Object) (object T, done bool, err error) {
	found := false
	err = meta.EachListItem(list, func(item runtime.Object) (err error) {
		if o, ok := item.(T); ok && o.GetName() == q.Name {
			object, found = o, true
			done, err = q.Answered(o)
		}
		return err
	})
	if err == nil && !found {
		err = q.Deleted
	}
	return object, done, err
}

// follow looks at what a watch brings. done is false if the watch ends before.
func (q Question[T]) follow(ctx context.Context, w watch.Interface) (object T, done bool, err error) {
	for {
		var event watch.Event
		var open bool
		select {
		case <-ctx.Done():
			return object, false, ctx.Err()
		case event, open = <-w.ResultChan():
		}
		if !open {
			return object, false, nil
		}
		if event.Type == watch.Error {
			if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				return object, false, fmt.Errorf("watch %s: %w", q.What, err)
			}
			return object, false, nil // from the list on again
		}
		o, ok := event.Object.(T)
		if !ok || o.GetName() != q.Name {
			continue
		}
		if event.Type == watch.Deleted {
			return o, false, q.Deleted
		}
		if done, err := q.Answered(o); done || err != nil {
			return o, done, err
		}
	}
}
