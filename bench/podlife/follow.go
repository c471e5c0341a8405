package podlife

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// gone is the state of a pod that the API has no more.
const gone = "gone"

// A follower knows the pods by a watch. It reads it only in await, and so belongs
// to one goroutine.
type follower struct {
	client kubernetes.Interface
	events watch.Interface
	states map[string]string // by name: the phase, or gone
}

func follow(ctx context.Context, client kubernetes.Interface) (*follower, error) {
	f := &follower{client: client, states: map[string]string{}}
	return f, f.open(ctx)
}

func (f *follower) Stop() { f.events.Stop() }

// open begins the watch, after a list: an API server may end a watch at any time.
func (f *follower) open(ctx context.Context) error {
	pods := f.client.CoreV1().Pods(metav1.NamespaceDefault)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return err
	}
	for name := range f.states {
		f.states[name] = gone
	}
	for i := range list.Items {
		f.states[list.Items[i].Name] = string(list.Items[i].Status.Phase)
	}
	f.events, err = pods.Watch(ctx, metav1.ListOptions{LabelSelector: label, ResourceVersion: list.ResourceVersion})
	return err
}

// next takes in the next event, until limited is done.
func (f *follower) next(ctx, limited context.Context) error {
	select {
	case e, ok := <-f.events.ResultChan():
		pod, isPod := e.Object.(*v1.Pod)
		switch {
		case !ok || !isPod:
			return f.open(ctx)
		case e.Type == watch.Deleted:
			f.states[pod.Name] = gone
		default:
			f.states[pod.Name] = string(pod.Status.Phase)
		}
		return nil
	case <-limited.Done():
		return context.Cause(limited)
	}
}

// await returns the moment at which the last of the pods got to a state.
func (f *follower) await(ctx context.Context, names []string, state string) (time.Time, error) {
	limited, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
	defer cancel()
	for {
		missing := 0
		for _, name := range names {
			if f.states[name] != state {
				missing++
			}
		}
		now := time.Now()
		if missing == 0 {
			return now, nil
		}
		if err := f.next(ctx, limited); err != nil {
			return now, fmt.Errorf("wait until %d of %d pods are %s: %w", missing, len(names), state, err)
		}
	}
}
