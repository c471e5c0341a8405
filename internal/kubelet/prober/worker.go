package prober

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

const (
	// attempts is how often a container is asked again when nobody could be
	// asked, as by the upstream kubelet.
	attempts = 3

	// longestLook bounds the wait for a container that does not run. AddPod
	// says when one starts; this is for when that is missed.
	longestLook = 10 * time.Second
)

// A worker is one probe of one container.
//
//	          a container runs          the time has come
//	looking ───────────────────► waiting ───────────────► asking
//	   ▲ ▲                       ▲     ▲                   │   │
//	   │ │                       │     └──────── answer ───┘   │
//	   │ │ the container         │ startup succeeded           │ liveness failed,
//	   │ │ ended, or another     │                             │ startup decided
//	   │ └────────────── blocked by startup                    ▼
//	   └─────────────── another container ──────────────── on hold
//
// On hold nothing is asked: a command in a container that is being killed can
// break it (#21751), and a startup probe that has decided is done.
type worker struct {
	p     *Prober
	key   key
	pod   *v1.Pod
	c     *v1.Container
	probe *v1.Probe
	wake  wake.Bell // look again now

	// p.mu guards these.
	removed  bool
	cancel   func() // nil: not started yet
	answerID string // the container that p.answers has an answer of ours for

	// Of the worker's goroutine alone:
	id     string    // the container last seen
	due    time.Time // when to ask next
	onHold bool
	last   bool // the last result
	row    int  // how often it came in a row
}

func newWorker(p *Prober, name key, pod *v1.Pod, c *v1.Container, probe *v1.Probe) *worker {
	return &worker{p: p, key: name, pod: pod, c: c, probe: probe, wake: wake.NewBell()}
}

func (w *worker) period() time.Duration { return seconds(max(w.probe.PeriodSeconds, 1)) }

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// run asks until ctx is done.
func (w *worker) run(ctx context.Context) {
	defer w.p.metrics.forget(w)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
		timer.Reset(w.step(ctx, time.Now()))
	}
}

// step asks if it is time to, and returns when to look again.
func (w *worker) step(ctx context.Context, now time.Time) time.Duration {
	look := min(w.period(), longestLook)
	status, _ := w.p.cfg.Statuses.Get(w.key.uid) // what was known last is good enough
	container := status.Container(w.key.container)
	if container == nil || container.ID == "" || container.State == observed.Created {
		return look
	}
	if container.ID != w.id && !w.adopt(container, now) {
		return look
	}
	if container.State != observed.Running || w.onHold || w.blocked() {
		return look
	}
	if wait := w.due.Sub(now); wait > 0 {
		return wait
	}
	w.due = now.Add(w.period())
	w.ask(ctx, w.ip(status))
	return max(time.Until(w.due), 0)
}

// adopt begins with a container that was not seen before. It returns false
// while it cannot be told how far the container is.
func (w *worker) adopt(c *observed.ContainerStatus, now time.Time) bool {
	old := !c.StartedAt.IsZero() && c.StartedAt.Before(w.p.began)
	started := false
	if old && w.key.kind == startup {
		told, known := w.p.cfg.Told.Get(w.key.uid)
		if !known {
			return false
		}
		started = toldStarted(&told, w.key.container, c.ID)
	}
	w.p.forget(w)
	w.id, w.onHold, w.row = c.ID, false, 0
	w.due = now
	if !c.StartedAt.IsZero() {
		w.due = c.StartedAt.Add(seconds(w.probe.InitialDelaySeconds))
	}
	if old {
		if spread := now.Add(w.key.offset(w.period())); w.due.Before(spread) {
			w.due = spread
		}
	}
	if started {
		// Its startup is long over; to ask again could kill it.
		w.onHold = true
		w.p.set(w, c.ID, true)
	}
	return true
}

// toldStarted reports whether the API was told that a container has started.
func toldStarted(status *v1.PodStatus, name, id string) bool {
	for _, list := range [][]v1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name && strings.HasSuffix(list[i].ContainerID, "://"+id) {
				return list[i].Started != nil && *list[i].Started
			}
		}
	}
	return false
}

// blocked reports whether the probe waits for the container's startup probe.
func (w *worker) blocked() bool {
	if w.key.kind == startup || w.c.StartupProbe == nil {
		return false
	}
	healthy, _ := w.p.Startup(w.id)
	return !healthy
}

// ip is where the container is reached.
func (w *worker) ip(status *observed.Status) string {
	if w.pod.Spec.HostNetwork {
		return w.p.cfg.HostIP()
	}
	if len(status.IPs) == 0 {
		return ""
	}
	return status.IPs[0]
}

// ask asks the container and keeps the answer, if it makes one.
func (w *worker) ask(ctx context.Context, ip string) {
	began := time.Now()
	var ok bool
	var output string
	var err error
	for range attempts {
		if ok, output, err = w.p.cfg.Handler.Probe(ctx, w.probe, w.c, w.id, ip); err == nil || ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return
	}
	w.p.metrics.observe(w, ok, err, time.Since(began))
	w.tell(ok, output, err)
	if err != nil {
		return // nothing is known, so nothing changes
	}
	if ok != w.last {
		w.row = 0
	}
	w.last = ok
	w.row++
	threshold := w.probe.FailureThreshold
	if ok {
		threshold = w.probe.SuccessThreshold
	}
	if w.row < int(threshold) {
		return
	}
	if w.key.kind == startup || (w.key.kind == liveness && !ok) {
		w.onHold = true
	}
	w.p.set(w, w.id, ok)
}

// tell writes the event of a result that is not simply good.
func (w *worker) tell(ok bool, output string, err error) {
	log := w.p.cfg.Log.With("pod", w.pod.Namespace+"/"+w.pod.Name, "container", w.key.container, "probe", string(w.key.kind))
	event := func(why, format string, args ...any) {
		w.p.cfg.Events.Eventf(w.reference(), v1.EventTypeWarning, why, format, args...)
	}
	switch {
	case err != nil:
		log.Debug("Probe could not ask", "err", err)
		event(reason.Unhealthy, "%s probe errored and resulted in %s state: %s", w.key.kind, "unknown", err)
	case !ok:
		log.Debug("Probe failed", "output", output)
		event(reason.Unhealthy, "%s probe failed: %s", w.key.kind, output)
	case output != "":
		log.Debug("Probe warned", "output", output)
		event(reason.ProbeWarning, "%s probe warning: %s", w.key.kind, output)
	}
}

// reference is the container in its pod, by which events are told apart.
func (w *worker) reference() *v1.ObjectReference {
	list := "containers"
	for i := range w.pod.Spec.InitContainers {
		if w.pod.Spec.InitContainers[i].Name == w.key.container {
			list = "initContainers"
		}
	}
	return &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: w.pod.Namespace, Name: w.pod.Name, UID: w.pod.UID,
		ResourceVersion: w.pod.ResourceVersion, FieldPath: fmt.Sprintf("spec.%s{%s}", list, w.key.container),
	}
}
