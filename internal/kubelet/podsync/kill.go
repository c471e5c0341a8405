package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// minGrace is what a container always gets to end by itself, as upstream's.
const minGrace = 2 * time.Second

// gracePeriod returns how long a container of the pod gets to end. probe is the
// one whose failure ends it, or nil.
func gracePeriod(pod *v1.Pod, probe *v1.Probe) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds
	case probe != nil && probe.TerminationGracePeriodSeconds != nil:
		seconds = *probe.TerminationGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(seconds) * time.Second
}

// killPod stops the containers all at once, but for the order of sidecars, and
// then the sandboxes. pod is nil for an orphan, which gets no hooks and events,
// and the grace period that is noted on its containers, where one is.
func (s *Syncer) killPod(ctx context.Context, pod *v1.Pod, status *observed.Status, grace time.Duration) error {
	var running []*observed.ContainerStatus
	for i := range status.Containers {
		if c := &status.Containers[i]; c.State == observed.Running || c.State == observed.Unknown {
			running = append(running, c)
		}
	}
	turns := newTurns(pod, running)
	errs := make([]error, len(running))
	var wg sync.WaitGroup
	for i, c := range running {
		period := grace
		if pod == nil && c.Grace != nil {
			period = *c.Grace
		}
		wg.Go(func() {
			errs[i] = s.killContainer(ctx, pod, stop{id: c.ID, name: c.Name, grace: period, ips: status.IPs, turns: turns})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, sandbox := range status.Sandboxes {
		if err := s.cfg.Runtime.StopSandbox(ctx, sandbox.GetId()); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// A stop says how to stop one container.
type stop struct {
	id      string
	name    string
	message string // of the event; empty: the usual one
	grace   time.Duration
	now     bool     // without any time to end, and without its hook
	ips     []string // the pod's, for hooks
	turns   *turns   // nil: no order
}

// killContainer runs a container's preStop hook and stops it. The hook and the
// wait for its turn use up the grace period.
func (s *Syncer) killContainer(ctx context.Context, pod *v1.Pod, k stop) error {
	deadline := time.Now().Add(k.grace)
	if pod != nil {
		if k.message == "" {
			k.message = "Stopping container " + k.name
		}
		s.events.container(pod, k.name, v1.EventTypeNormal, reason.Killing, k.message)
		c := podfiles.Container(pod, k.name)
		if c != nil && c.Lifecycle != nil && c.Lifecycle.PreStop != nil && k.grace > 0 && s.firstHook(pod.UID, k.id) {
			end := s.preStop(ctx, pod, c, k)
			defer end()
		}
	}
	k.turns.wait(ctx, k.name, time.Until(deadline))
	if err := ctx.Err(); err != nil {
		return err
	}
	left := max(time.Until(deadline), minGrace).Round(time.Second)
	if k.now {
		left = 0
	}
	if err := s.cfg.Runtime.StopContainer(ctx, k.id, left); err != nil {
		return fmt.Errorf("stop %s: %w", k.name, err)
	}
	k.turns.done(k.name)
	return nil
}

// preStop runs a hook and waits for its end, but no longer than the grace period.
// A command that takes longer goes on until the container is killed, as upstream
// has it; the caller calls end then. What a hook says goes to the log and not into
// the event, which more people may read.
func (s *Syncer) preStop(ctx context.Context, pod *v1.Pod, c *v1.Container, k stop) (end func()) {
	log := s.log.With("pod", pod.Namespace+"/"+pod.Name, "container", c.Name)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- s.runHook(ctx, pod, c, c.Lifecycle.PreStop, hook{containerID: k.id, ips: k.ips})
	}()
	over := time.NewTimer(k.grace)
	defer over.Stop()
	select {
	case err := <-ended:
		cancel()
		if err != nil {
			log.Warn("preStop hook failed", "err", err)
			s.events.container(pod, c.Name, v1.EventTypeWarning, reason.FailedPreStopHook, "PreStopHook failed")
		}
		return func() {}
	case <-over.C:
		log.Warn("preStop hook did not end within the grace period")
	case <-ctx.Done():
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			log.Debug("preStop hook was given up", "err", err)
		}
	}
}

// turns is the order in which a pod's containers end: sidecars after all
// regular containers, and each after the sidecars behind it.
type turns struct {
	ended map[string]chan struct{} // closed when the container of that name has ended
	after map[string][]string      // whom a container waits for

	mu     sync.Mutex
	closed map[string]bool // guarded by mu: whose channel is closed
}

// newTurns returns the order of the running containers, or nil if there is none.
func newTurns(pod *v1.Pod, running []*observed.ContainerStatus) *turns {
	if pod == nil {
		return nil
	}
	var later []string // names of those who end before
	for i := range pod.Spec.Containers {
		later = append(later, pod.Spec.Containers[i].Name)
	}
	t := &turns{ended: map[string]chan struct{}{}, after: map[string][]string{}, closed: map[string]bool{}}
	for _, c := range running {
		t.ended[c.Name] = make(chan struct{})
	}
	sidecars := false
	for i := len(pod.Spec.InitContainers) - 1; i >= 0; i-- {
		c := &pod.Spec.InitContainers[i]
		if !podfiles.IsSidecar(c) {
			continue
		}
		sidecars = true
		t.after[c.Name] = later
		later = append(slices.Clip(later), c.Name)
	}
	if !sidecars {
		return nil
	}
	return t
}

// wait waits until it is name's turn, but no longer than limit.
func (t *turns) wait(ctx context.Context, name string, limit time.Duration) {
	if t == nil || limit <= 0 {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, other := range t.after[name] {
		ended, ok := t.ended[other]
		if !ok {
			continue // does not run
		}
		select {
		case <-ended:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// done tells the others that name has ended.
func (t *turns) done(name string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if ch, ok := t.ended[name]; ok && !t.closed[name] {
		t.closed[name] = true
		close(ch)
	}
}
