package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// An upstream is upstream's pod configuration with one source, the API.
type upstream struct {
	send    func(pods []*corev1.Pod)
	updates <-chan kubetypes.PodUpdate
}

// newUpstream starts upstream's merge. It has no way to end its goroutine.
func newUpstream(ctx context.Context) *upstream {
	c := config.NewPodConfig(&record.FakeRecorder{}, noObserver{})
	return &upstream{send: sender(c.Channel(ctx, kubetypes.ApiserverSource)), updates: c.Updates()}
}

// sender returns a function that sends full sets. Upstream does not export the
// channel's type: what can be said of it is its form.
func sender[T ~struct{ Pods []*corev1.Pod }](to chan<- T) func(pods []*corev1.Pod) {
	return func(pods []*corev1.Pod) { to <- T(struct{ Pods []*corev1.Pod }{pods}) }
}

type noObserver struct{}

func (noObserver) ObservedPodOnWatch(klog.Logger, *corev1.Pod, time.Time) {}
