package podlife

import (
	"context"
	"errors"
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
	watch.Interface
	states map[string]string // by name: the phase, or gone
}

func follow(ctx context.Context, client kubernetes.Interface) (*follower, error) {
	events, err := client.CoreV1().Pods(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{LabelSelector: label})
	return &follower{events, map[string]string{}}, err
}

// await returns the moment at which the last of the pods got to a state.
func (f *follower) await(ctx context.Context, names []string, state string) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
	defer cancel()
	missing := map[string]bool{}
	for _, name := range names {
		if f.states[name] != state {
			missing[name] = true
		}
	}
	now := time.Now()
	for len(missing) > 0 {
		select {
		case e, ok := <-f.ResultChan():
			if !ok {
				return now, errors.New("the watch of pods ended")
			}
			now = time.Now()
			pod, ok := e.Object.(*v1.Pod)
			if !ok {
				return now, fmt.Errorf("the watch of pods: %v", e.Object)
			}
			f.states[pod.Name] = string(pod.Status.Phase)
			if e.Type == watch.Deleted {
				f.states[pod.Name] = gone
			}
			if f.states[pod.Name] == state {
				delete(missing, pod.Name)
			}
		case <-ctx.Done():
			return now, fmt.Errorf("wait until %d of %d pods are %s: %w", len(missing), len(names), state, context.Cause(ctx))
		}
	}
	return now, nil
}
