// Package podrun runs one pod to its end through the API of a node on this
// machine: it makes what the pod needs and the pod, writes its logs, says how it
// ended, and removes all that it made.
//
// It reads the pod and its events from the API and its logs from the node's
// folder of logs, where each run of a container has a file of its own: no line
// is lost between two requests, and none is written twice. It never touches an
// object that was there before.
//
// A Runner is for one Run.
package podrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// Config says what to run and where. All but Made, Leave and GoneLimit are
// required.
type Config struct {
	Client  kubernetes.Interface
	Objects dynamic.Interface // the same API

	// Documents are the pod, exactly one, and what it needs.
	Documents []manifest.Document
	// Logs is the folder of all pods' logs of the node.
	Logs string
	// Out gets the containers' output, and nothing else.
	Out io.Writer
	// Say is called with each step, and with what goes wrong meanwhile. It is
	// called from several goroutines, one at a time.
	Say func(step string)
	// Made is called with the name of the pod once there is one to remove.
	Made func(namespace, name string)

	// Leave makes the pod and leaves it.
	Leave bool
	// GoneLimit is how long the pod may take to go beyond its grace period;
	// default 1 min.
	GoneLimit time.Duration
}

// A Runner runs one pod.
type Runner struct {
	cfg  Config
	docs []manifest.Document // without the pod, in the order in which they are made
	pod  manifest.Document
}

// New returns a Runner, or a *Failure if the documents are not one pod and
// what it needs.
func New(cfg Config) (*Runner, error) {
	cfg.GoneLimit = cmp.Or(cfg.GoneLimit, time.Minute)
	if cfg.Made == nil {
		cfg.Made = func(string, string) {}
	}
	var mu sync.Mutex
	say := cfg.Say
	cfg.Say = func(step string) {
		mu.Lock()
		defer mu.Unlock()
		say(step)
	}
	r := &Runner{cfg: cfg}
	pods := 0
	for _, d := range cfg.Documents {
		if d.Key.Kind == "Pod" {
			r.pod = d
			pods++
		} else {
			r.docs = append(r.docs, d)
		}
	}
	if pods != 1 {
		return nil, failf(CodeInvalid, "%d Pods are given: give exactly one, and the objects that it needs", pods)
	}
	clusterWideFirst(r.docs)
	return r, nil
}

// Run makes the pod and returns when it has ended and all that was made is
// gone. The error is nil if every container ended with 0, and else holds a
// *Failure, which has the exit code.
//
// Once ctx is done the pod is stopped, with its grace period, and removed as
// ever; the error is then ctx's cause.
func (r *Runner) Run(ctx context.Context) error {
	undo := context.WithoutCancel(ctx)
	made, err := r.makeObjects(ctx)
	if err != nil {
		return errors.Join(err, r.removeObjects(undo, made))
	}
	pod, err := r.makePod(ctx)
	if err != nil {
		return errors.Join(err, r.removeObjects(undo, made))
	}
	r.cfg.Made(pod.Namespace, pod.Name)
	if r.cfg.Leave {
		return nil
	}
	a := newAttendance(r.cfg, pod)
	err = a.run(ctx)
	return errors.Join(err, r.removeObjects(undo, made))
}

// An attendance is being with a pod from its creation until it is gone.
type attendance struct {
	cfg  Config
	pod  *v1.Pod // as it was last seen
	logs *logs
	told map[string]bool // events that were passed on
}

func newAttendance(cfg Config, pod *v1.Pod) *attendance {
	return &attendance{cfg: cfg, pod: pod, logs: newLogs(cfg.Logs, pod, cfg.Out), told: map[string]bool{}}
}

// run follows the pod to its end, removes it and says how it went.
func (a *attendance) run(ctx context.Context) error {
	all, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	pod := a.pod             // the first: a.pod is this goroutine's own
	seen := make(chan sight) // never closed
	work.Go(func() { watchPod(all, a.cfg.Client, pod, seen) })
	events := make(chan *v1.Event) // never closed
	work.Go(func() { watchEvents(all, a.cfg.Client, pod, events) })
	written := make(chan error, 1)
	work.Go(func() { written <- a.logs.run(all) })

	err, ended := a.untilDecided(ctx, seen, events, written)
	if ended { // all is written before the node forgets the pod
		a.logs.finish()
		return errors.Join(err, a.drained(all, written), a.remove(all, seen, events))
	}
	// What it writes while it ends is wanted, too.
	errGone := a.remove(all, seen, events)
	a.logs.finish()
	return errors.Join(err, errGone, a.drained(all, written))
}

// drainLimit is for a log on a disk that hangs.
const drainLimit = 30 * time.Second

// drained waits until all that the containers wrote is written.
func (a *attendance) drained(ctx context.Context, written chan error) error {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return failf(CodeFailed, "the logs of pod %s could not be read to their end within %v", name(a.pod), drainLimit)
	}
}

// untilDecided returns once it is known how the pod ends. ended: by itself, so
// that nothing runs any more.
func (a *attendance) untilDecided(ctx context.Context, seen <-chan sight, events <-chan *v1.Event, written chan error) (err error, ended bool) {
	for {
		select {
		case <-ctx.Done():
			a.cfg.Say(fmt.Sprintf("stopping pod %s, which has %v for that", name(a.pod), grace(a.pod)))
			return context.Cause(ctx), false
		case s := <-seen:
			switch {
			case s.err != nil:
				return s.err, false
			case s.gone:
				return failf(CodeRefused, "pod %s was deleted by somebody else before it ended", name(a.pod)), true
			}
			a.take(s.pod)
			if v := judge(s.pod); v.decided {
				return v.err(s.pod), v.ended
			}
		case e := <-events:
			a.tell(e)
			if err := fatal(e); err != nil {
				return err, false
			}
		case err := <-written: // nobody reads it
			written <- nil
			return err, false
		}
	}
}

// remove deletes the pod and waits until it is gone.
func (a *attendance) remove(ctx context.Context, seen <-chan sight, events <-chan *v1.Event) error {
	limit := grace(a.pod) + a.cfg.GoneLimit
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if gone, err := deletePod(ctx, a.cfg.Client, a.pod); gone || err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return failf(CodeFailed, "pod %s is not gone after %v: look at it with \"holdfast kubectl describe pod -n %s %s\"", name(a.pod), limit, a.pod.Namespace, a.pod.Name)
		case s := <-seen:
			if s.gone || s.err != nil {
				return s.err
			}
			a.take(s.pod)
		case e := <-events:
			a.tell(e)
		}
	}
}

func (a *attendance) take(pod *v1.Pod) {
	a.pod = pod
	a.logs.see(pod)
}

// tell passes on what takes long or goes wrong.
func (a *attendance) tell(e *v1.Event) {
	line := describe(e)
	if line == "" || a.told[line] {
		return
	}
	a.told[line] = true
	a.cfg.Say(line)
}

// name returns a pod's name as people write it.
func name(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

func grace(pod *v1.Pod) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		seconds = *s
	}
	return time.Duration(seconds) * time.Second
}
