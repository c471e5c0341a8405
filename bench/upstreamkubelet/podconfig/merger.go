package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
)

// A step is what a source delivers at once.
type step struct {
	all     []*corev1.Pod // the full set
	changed []*corev1.Pod // those of it that are other objects than before
}

// An update is what came of a step.
type update struct {
	op   string // upstream's name
	pods int
}

// A merger is a merge with one source, the API. Both take a step from a channel
// without a buffer, in a goroutine of their own, and put updates into a channel
// of 50: when send returns, the step before has been merged. There is no way to
// end the goroutine of upstream's.
type merger struct {
	send func(s step)
	recv func() update
}

func newUpstream(ctx context.Context) merger {
	c := config.NewPodConfig(&record.FakeRecorder{}, noObserver{})
	send := sender(c.Channel(ctx, kubetypes.ApiserverSource))
	names := map[kubetypes.PodOperation]string{
		kubetypes.ADD: "ADD", kubetypes.UPDATE: "UPDATE", kubetypes.DELETE: "DELETE", kubetypes.REMOVE: "REMOVE", kubetypes.RECONCILE: "RECONCILE",
	}
	return merger{
		send: func(s step) { send(s.all) },
		recv: func() update {
			u := <-c.Updates()
			return update{names[u.Op], len(u.Pods)}
		},
	}
}

// sender returns a function that sends full sets. Upstream does not export the
// channel's type: what can be said of it is its form.
func sender[T ~struct{ Pods []*corev1.Pod }](to chan<- T) func(pods []*corev1.Pod) {
	return func(pods []*corev1.Pod) { to <- T(struct{ Pods []*corev1.Pod }{pods}) }
}

type noObserver struct{}

func (noObserver) ObservedPodOnWatch(klog.Logger, *corev1.Pod, time.Time) {}

// newOurs is given full sets, or from the second step on deltas.
func newOurs(deltas bool) merger {
	deliveries, updates := make(chan desired.Delivery), make(chan desired.Update, 50)
	pods := desired.New("api")
	go func() {
		for d := range deliveries {
			for _, u := range pods.Merge(d, time.Now()) {
				updates <- u
			}
		}
	}()
	started := false
	return merger{
		send: func(s step) {
			d := desired.Delivery{Source: "api", Pods: s.all}
			if deltas && started {
				d = desired.Delivery{Source: "api", Kind: desired.Delta, Pods: s.changed}
			}
			started = true
			deliveries <- d
		},
		recv: func() update {
			u := <-updates
			return update{u.Op.String(), len(u.Pods)}
		},
	}
}
