package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/bench/procfs"
)

// warmUp is how many pods go first and are not counted.
const warmUp = 2

// pods starts and deletes pods through the API, one at a time.
func (r *report) pods(ctx context.Context, o options, n *node) error {
	client, err := n.client()
	if err != nil {
		return err
	}
	// The first pods wait for what the node makes once, such as the namespace's
	// service account.
	for i := range warmUp + o.pods {
		say("pod %d of %d", i+1, warmUp+o.pods)
		started, deleted, err := onePod(ctx, client, fmt.Sprintf("pod-%d", i))
		if err != nil {
			return fmt.Errorf("%w\n%s", err, n.log.String())
		}
		if i >= warmUp {
			r.PodStart, r.PodDelete = append(r.PodStart, started), append(r.PodDelete, deleted)
		}
	}
	r.AfterPods, err = procfs.ReadUsage(n.cmd.Process.Pid)
	return err
}

// onePod measures from the request that creates a pod to the watch event that
// says that it is Ready, and from the request that deletes it to the event that
// says that it is gone.
func onePod(ctx context.Context, client kubernetes.Interface, name string) (started, deleted time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var pod v1.Pod
	if err := yaml.UnmarshalStrict([]byte(podYAML(name)), &pod); err != nil {
		return 0, 0, err
	}
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	events, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return 0, 0, err
	}
	defer events.Stop()

	began := time.Now()
	if _, err := pods.Create(ctx, &pod, metav1.CreateOptions{}); err != nil {
		return 0, 0, err
	}
	if err := await(ctx, events, isReady); err != nil {
		return 0, 0, fmt.Errorf("wait until pod %s is Ready: %w", name, err)
	}
	started = time.Since(began)

	began = time.Now()
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return 0, 0, err
	}
	if err := await(ctx, events, func(e watch.Event) bool { return e.Type == watch.Deleted }); err != nil {
		return 0, 0, fmt.Errorf("wait until pod %s is gone: %w", name, err)
	}
	return started, time.Since(began), nil
}

// await reads events up to one that is wanted.
func await(ctx context.Context, events watch.Interface, wanted func(watch.Event) bool) error {
	for {
		select {
		case e, ok := <-events.ResultChan():
			if !ok {
				return fmt.Errorf("the watch ended: %w", context.Cause(ctx))
			}
			if wanted(e) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func isReady(e watch.Event) bool {
	pod, ok := e.Object.(*v1.Pod)
	if !ok || pod.Status.Phase != v1.PodRunning {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
