package prober

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("runtime is away")

// world is everything around a Prober: what containers answer, what the runtime
// reports, what the API was told, and a record of what happened, each line
// with the seconds since the start.
type world struct {
	t      *testing.T
	p      *Prober
	start  time.Time
	cancel context.CancelFunc
	reg    *prometheus.Registry

	mu       sync.Mutex
	answer   func(use kind, id string) (bool, string, error)
	takes    time.Duration // a probe
	statuses map[types.UID]*observed.Status
	told     map[types.UID]v1.PodStatus
	trace    []string
}

// newWorld runs a Prober among fakes until the test ends. It must be called
// inside a bubble.
func newWorld(t *testing.T) *world {
	w := newStillWorld(t)
	w.run()
	return w
}

// newStillWorld is newWorld with a prober that does not run yet.
func newStillWorld(t *testing.T) *world {
	w := &world{
		t: t, start: time.Now(), reg: prometheus.NewRegistry(),
		answer:   func(kind, string) (bool, string, error) { return true, "", nil },
		statuses: map[types.UID]*observed.Status{}, told: map[types.UID]v1.PodStatus{},
	}
	w.p = New(Config{
		Handler: w, Statuses: w, Told: toldWorld{w}, Events: w, Metrics: w.reg,
		HostIP: func() string { return "10.0.0.1" }, Log: slog.New(slog.DiscardHandler),
	})
	return w
}

// run runs the prober until the test ends.
func (w *world) run() {
	t := w.t
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel = cancel
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.p.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case uid := <-w.p.Updates():
				w.mu.Lock()
				w.note("update %s", uid)
				w.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// note records what happened; w.mu is held.
func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%g ", time.Since(w.start).Seconds())+fmt.Sprintf(format, args...))
}

// events takes the record.
func (w *world) events() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	trace := w.trace
	w.trace = nil
	slices.SortFunc(trace, func(a, b string) int {
		// Of one moment the order does not matter.
		return cmp.Or(cmp.Compare(moment(a), moment(b)), strings.Compare(a, b))
	})
	return strings.Join(trace, "\n")
}

// moment is when a line of the record happened.
func moment(line string) float64 {
	text, _, _ := strings.Cut(line, " ")
	at, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err) // note wrote it
	}
	return at
}

func (w *world) Probe(ctx context.Context, probe *v1.Probe, _ *v1.Container, id, ip string) (bool, string, error) {
	w.mu.Lock()
	use := kind(probe.Exec.Command[0])
	w.note("%s %s at %s", use, id, ip)
	answer, takes := w.answer, w.takes
	w.mu.Unlock()
	if takes > 0 {
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return false, "", ctx.Err()
		case <-timer.C:
		}
	}
	return answer(use, id)
}

func (w *world) Eventf(object runtime.Object, _, reason, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note("event %s on %s: %s", reason, object.(*v1.ObjectReference).FieldPath, fmt.Sprintf(format, args...))
}

func (w *world) Get(uid types.UID) (*observed.Status, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if status, ok := w.statuses[uid]; ok {
		return status, nil
	}
	return &observed.Status{UID: uid}, nil
}

type toldWorld struct{ *world }

func (w toldWorld) Get(uid types.UID) (v1.PodStatus, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	status, ok := w.told[uid]
	return status, ok
}

// answers changes what containers answer.
func (w *world) answers(f func(use kind, id string) (bool, string, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

func always(ok bool, output string, err error) func(kind, string) (bool, string, error) {
	return func(kind, string) (bool, string, error) { return ok, output, err }
}

// runs reports a container of pod u1 as running since a moment.
func (w *world) runs(id string, since time.Time) {
	w.reports(observed.ContainerStatus{ID: id, Name: "app", State: observed.Running, StartedAt: since})
}

func (w *world) reports(containers ...observed.ContainerStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statuses["u1"] = &observed.Status{UID: "u1", IPs: []string{"10.1.0.2"}, Containers: containers}
}

func pod(change ...func(*v1.Container)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u1", Name: "web", Namespace: "default"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app"}}},
	}
	for _, f := range change {
		f(&p.Spec.Containers[0])
	}
	return p
}

// probe makes a probe as the API would: with defaults, and said in seconds.
func probe(use kind, delay, period, successes, failures int32) func(*v1.Container) {
	return func(c *v1.Container) {
		p := &v1.Probe{
			ProbeHandler:        v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{string(use)}}},
			InitialDelaySeconds: delay, PeriodSeconds: period, SuccessThreshold: successes, FailureThreshold: failures, TimeoutSeconds: 1,
		}
		switch use {
		case startup:
			c.StartupProbe = p
		case liveness:
			c.LivenessProbe = p
		case readiness:
			c.ReadinessProbe = p
		}
	}
}
