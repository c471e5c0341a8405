package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"
)

// eventRoom is the upstream kubelet's room for events.
const eventRoom = 1000

// upstream is upstream's generator over a machine.
type upstream struct {
	*machine
	kubecontainer.Runtime // the methods that nobody calls here
	generator             *pleg.GenericPLEG
	events                chan *pleg.PodLifecycleEvent
}

func newUpstream(ctx context.Context, m *machine) (*upstream, error) {
	u := &upstream{machine: m, events: make(chan *pleg.PodLifecycleEvent, eventRoom)}
	generator, ok := pleg.NewGenericPLEG(u, u.events, &pleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute},
		kubecontainer.NewCache(), clock.RealClock{}).(*pleg.GenericPLEG)
	if !ok {
		return nil, errors.New("upstream's generator is of another type")
	}
	u.generator = generator
	u.relist(ctx, perEvent(len(m.uids)))
	return u, nil
}

// perEvent is how many events the first list has: one a sandbox and container.
func perEvent(pods int) int { return pods * (1 + perPod) }

// relist lists once, and returns when that and its events are dealt with.
func (u *upstream) relist(ctx context.Context, events int) {
	done := make(chan struct{})
	go func() {
		u.generator.Relist(ctx)
		close(done)
	}()
	for listing := true; listing; {
		select {
		case <-u.events:
			events--
		case <-done:
			listing = false
		}
	}
	for range min(events, len(u.events)) {
		<-u.events
	}
}

// GetPods is of the runtime that the generator asks.
func (u *upstream) GetPods(context.Context, bool) ([]*kubecontainer.Pod, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	pods, now := slices.Clone(u.upListed), time.Now()
	for _, pod := range pods {
		pod.Timestamp = now
	}
	return pods, nil
}

// GetPod is of the runtime that the generator asks.
func (u *upstream) GetPod(_ context.Context, uid types.UID) (*kubecontainer.Pod, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.upListed[u.index[uid]], nil
}

// GetPodStatus is of the runtime that the generator asks.
func (u *upstream) GetPodStatus(ctx context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	if err := u.wait(ctx); err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.upStatus[pod.ID], nil
}
