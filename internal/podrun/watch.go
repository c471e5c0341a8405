package podrun

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

const (
	// silence is how long the API may not answer until the run is given up.
	silence = 15 * time.Second
	// watchPause is between two tries to watch.
	watchPause = 200 * time.Millisecond
)

// A sight is a pod as it was seen, or that it is gone, or that it cannot be
// seen any more.
type sight struct {
	pod  *v1.Pod
	gone bool
	err  error
}

var errEnded = errors.New("the watch ended")

// watchPod sends every change of a pod until it is gone, the API does not
// answer for long, or ctx is done; the last sight is sent for ever.
func watchPod(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, out chan<- sight) {
	send := func(s sight) bool {
		select {
		case out <- s:
			return true
		case <-ctx.Done():
			return false
		}
	}
	last := time.Now()
	for ctx.Err() == nil {
		gone, err := watchOnce(ctx, client, pod, func(p *v1.Pod) bool {
			last = time.Now()
			return send(sight{pod: p})
		})
		s := sight{gone: gone}
		if !gone && time.Since(last) > silence {
			s.err = failf(CodeFailed, "the node's API does not answer any more: %w", err)
		}
		if s.gone || s.err != nil {
			for send(s) {
			}
			return
		}
		if errors.Is(err, errEnded) {
			last = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

// watchOnce watches a pod for as long as one watch lasts. A watch begins with
// what is there; the question after it is for what is not.
func watchOnce(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, see func(*v1.Pod) bool) (gone bool, err error) {
	pods := client.CoreV1().Pods(pod.Namespace)
	w, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", pod.Name).String()})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && now.UID != pod.UID:
		return true, nil
	case err != nil:
		return false, err
	}
	if !see(now) {
		return false, ctx.Err()
	}
	for e := range w.ResultChan() {
		p, ok := e.Object.(*v1.Pod)
		switch {
		case !ok:
			return false, errEnded // too old, and the like
		case p.UID != pod.UID:
		case e.Type == watch.Deleted:
			see(p)
			return true, nil
		case !see(p):
			return false, ctx.Err()
		}
	}
	return false, errEnded
}

// watchEvents sends the events of a pod until ctx is done. They are for people:
// where there are none, nothing is missing.
func watchEvents(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, out chan<- *v1.Event) {
	of := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)).String()}
	for ctx.Err() == nil {
		if w, err := client.CoreV1().Events(pod.Namespace).Watch(ctx, of); err == nil {
			passOn(ctx, w, out)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

func passOn(ctx context.Context, w watch.Interface, out chan<- *v1.Event) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.ResultChan():
			if !ok {
				return
			}
			event, isEvent := e.Object.(*v1.Event)
			if !isEvent || e.Type == watch.Deleted {
				continue
			}
			select {
			case out <- event:
			case <-ctx.Done():
				return
			}
		}
	}
}
