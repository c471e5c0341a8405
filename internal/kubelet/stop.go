package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/startorder"
)

// stopLimit bounds the stop of one group of pods beyond their grace periods.
const stopLimit = 2 * time.Minute

// A stopper stops what runs of one pod that is wanted.
type stopper interface {
	SyncTerminating(ctx context.Context, pod *v1.Pod, status *observed.Status, grace *int64) error
}

// stopPods stops every pod that the runtime has, those of lower priority
// first, as upstream does when a node shuts down, and each before those that it
// comes after: what the others lean on goes last. Of a pod that is not in wanted nothing is known but its containers: it
// gets the grace period that is noted on them and no hooks.
func stopPods(ctx context.Context, runtime *cri.Runtime, syncer stopper, wanted map[types.UID]*v1.Pod, step func(string)) error {
	pods, err := runtime.Pods(ctx)
	if err != nil {
		return fmt.Errorf("list what runs: %w", err)
	}
	var errs []error
	for _, group := range stopGroups(pods, wanted) {
		step(fmt.Sprintf("stopping %s", names(group)))
		errs = append(errs, stopGroup(ctx, runtime, syncer, wanted, group))
	}
	return errors.Join(append(errs, stopDead(ctx, runtime, pods)...)...)
}

// stopGroups returns what runs in the order in which it stops.
func stopGroups(pods []observed.Pod, wanted map[types.UID]*v1.Pod) [][]observed.Pod {
	seen := map[types.UID]observed.Pod{}
	var known []*v1.Pod
	for _, o := range pods {
		if !running(o) {
			continue
		}
		seen[o.UID] = o
		p := wanted[o.UID]
		if p == nil { // the priority of most, and it comes after none
			p = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID}}
		}
		known = append(known, p)
	}
	var groups [][]observed.Pod
	for _, group := range startorder.Stops(known) {
		var stops []observed.Pod
		for _, p := range group {
			stops = append(stops, seen[p.UID])
		}
		groups = append(groups, stops)
	}
	return groups
}

// stopDead stops the sandboxes that had ended by themselves. Where nobody saw
// to that, a shim having been killed while containerd was dead perhaps, they
// still have their network namespace, address and ports.
func stopDead(ctx context.Context, runtime *cri.Runtime, pods []observed.Pod) []error {
	var errs []error
	for _, pod := range pods {
		for _, s := range pod.Sandboxes {
			if s.State == observed.Running {
				continue // stopped with its pod
			}
			if err := runtime.StopSandbox(ctx, s.ID); err != nil {
				errs = append(errs, fmt.Errorf("stop pod %s/%s: %w", pod.Namespace, pod.Name, err))
			}
		}
	}
	return errs
}

func stopGroup(ctx context.Context, runtime *cri.Runtime, syncer stopper, wanted map[types.UID]*v1.Pod, pods []observed.Pod) error {
	errs := make([]error, len(pods))
	var group sync.WaitGroup
	for i, p := range pods {
		group.Go(func() {
			if err := stopPod(ctx, runtime, syncer, wanted[p.UID], p); err != nil {
				errs[i] = fmt.Errorf("stop pod %s/%s: %w", p.Namespace, p.Name, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func stopPod(ctx context.Context, runtime *cri.Runtime, syncer stopper, pod *v1.Pod, seen observed.Pod) error {
	status, err := runtime.Inspect(ctx, seen.UID)
	if err != nil {
		return err
	}
	if pod != nil {
		ctx, cancel := context.WithTimeout(ctx, gracePeriod(pod)+stopLimit)
		defer cancel()
		return syncer.SyncTerminating(ctx, pod, status, nil)
	}
	errs := make([]error, len(status.Containers))
	var group sync.WaitGroup
	for i, c := range status.Containers {
		group.Go(func() {
			grace := gracePeriod(nil)
			if c.Grace != nil {
				grace = *c.Grace
			}
			errs[i] = runtime.StopContainer(ctx, c.ID, grace) // has a limit of its own
		})
	}
	group.Wait()
	for _, s := range seen.Sandboxes {
		errs = append(errs, runtime.StopSandbox(ctx, s.ID))
	}
	return errors.Join(errs...)
}

func running(pod observed.Pod) bool {
	return slices.ContainsFunc(pod.Sandboxes, func(s observed.Sandbox) bool { return s.State == observed.Running }) ||
		slices.ContainsFunc(pod.Containers, func(c observed.Container) bool { return c.State == observed.Running })
}

func gracePeriod(pod *v1.Pod) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	if pod != nil && pod.Spec.TerminationGracePeriodSeconds != nil {
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(seconds) * time.Second
}

func names(pods []observed.Pod) string {
	if len(pods) == 1 {
		return "pod " + pods[0].Namespace + "/" + pods[0].Name
	}
	return fmt.Sprintf("%d pods", len(pods))
}

// RemoveAll takes everything of pods off a runtime that no kubelet uses now.
// They are stopped already.
func RemoveAll(ctx context.Context, endpoint string) (err error) {
	conn, err := cri.Dial(endpoint)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	runtime := cri.New(conn, cri.Config{})
	pods, err := runtime.Pods(ctx)
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	var errs []error
	for _, pod := range pods {
		for _, c := range pod.Containers {
			errs = append(errs, runtime.RemoveContainer(ctx, c.ID))
		}
		for _, s := range pod.Sandboxes {
			errs = append(errs, runtime.StopSandbox(ctx, s.ID), runtime.RemoveSandbox(ctx, s.ID))
		}
	}
	return errors.Join(errs...)
}

// StopAll stops every pod on a runtime that no kubelet uses now.
func StopAll(ctx context.Context, endpoint string, step func(string)) (err error) {
	conn, err := cri.Dial(endpoint)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return stopPods(ctx, cri.New(conn, cri.Config{}), nil, nil, step)
}

// StopPods stops every pod on the runtime, each within its grace period, and
// removes its sandbox. Run must have ended; the API and the pods' volumes stay
// as they are, so that the next Run starts the same pods again.
func (k *Kubelet) StopPods(ctx context.Context, step func(string)) error {
	wanted := map[types.UID]*v1.Pod{}
	for _, pod := range k.loop.Pods() {
		wanted[pod.UID] = pod
	}
	return stopPods(ctx, k.runtime, k.syncer, wanted, step)
}
