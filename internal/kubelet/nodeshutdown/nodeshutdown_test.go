package nodeshutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is a machine with pods that end when they are asked to, and a login
// manager.
type world struct {
	*Manager
	t     *testing.T
	began time.Time
	state string // the state file
	stop  func()
	known chan struct{} // nil: all pods are known

	mu      sync.Mutex
	log     []string // what was done, and after how many seconds
	active  []*v1.Pod
	takes   map[types.UID]time.Duration // how long a pod takes to end; default: no time
	gone    map[types.UID]chan struct{}
	down    bool
	changes chan bool // of the connection; nil: there is none
	refused map[string]error
	held    int
}

func newWorld(t *testing.T, periods []Period, texts string) *world {
	w := &world{
		t: t, began: time.Now(), state: filepath.Join(t.TempDir(), "state"), active: podsOf(texts),
		takes: map[types.UID]time.Duration{}, gone: map[types.UID]chan struct{}{}, refused: map[string]error{},
	}
	w.start(periods)
	return w
}

func (w *world) start(periods []Period) {
	w.Manager = New(Config{
		Periods: periods, Open: w.open, Pods: fakePods{w}, Known: w.known, Events: w, StateFile: w.state,
		Node: &v1.ObjectReference{Kind: "Node", Name: "n1"}, Changed: func() { w.note("changed to %v", w.Err()) },
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	w.stop = runtest.Start(w.t, w.Run)
	synctest.Wait()
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf("%v ", time.Since(w.began).Round(time.Second))+fmt.Sprintf(format, args...))
}

// want compares what was done since the last time.
func (w *world) want(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(w.log, want); diff != "" {
		w.t.Errorf("got -, want +:\n%s", diff)
	}
	w.log = nil
}

func (w *world) Event(_ apiruntime.Object, _, reason, message string) {
	w.note("event %s: %s", reason, message)
}

func (w *world) open(context.Context) (Login, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refused["open"]; err != nil {
		return nil, err
	}
	w.changes = make(chan bool, 10)
	return &fakeLogin{w, w.changes}, nil
}

// turn says whether the machine goes down.
func (w *world) turn(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
	if w.changes != nil {
		w.changes <- down
	}
}

// drop breaks the connection; while err is not nil there is no other.
func (w *world) drop(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused["open"] = err
	close(w.changes)
	w.changes = nil
}

type fakeLogin struct {
	w       *world
	changes chan bool
}

func (l *fakeLogin) Watch(context.Context) (<-chan bool, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.changes <- l.w.down
	return l.changes, nil
}

func (l *fakeLogin) Allow(_ context.Context, wait time.Duration) error {
	l.w.note("allow %v", wait)
	return l.w.refused["allow"]
}

func (l *fakeLogin) Inhibit(context.Context) (func() error, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if err := l.w.refused["inhibit"]; err != nil {
		return nil, err
	}
	l.w.held++
	return func() error {
		l.w.note("release")
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		l.w.held--
		return nil
	}, nil
}

func (l *fakeLogin) Close() error { return nil }

func (w *world) wantHeld(want int) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held != want {
		w.t.Errorf("%d inhibitors, want %d", w.held, want)
	}
}

type fakePods struct{ w *world }

func (f fakePods) Active() []*v1.Pod {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return f.w.active
}

func (f fakePods) End(p *v1.Pod, grace int64) {
	f.w.note("end %s in %ds", p.UID, grace)
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	gone := make(chan struct{})
	f.w.gone[p.UID] = gone
	if takes := f.w.takes[p.UID]; takes > 0 {
		time.AfterFunc(min(takes, time.Duration(grace+1)*time.Second), func() { close(gone) })
	} else {
		close(gone)
	}
}

func (f fakePods) WaitFinished(ctx context.Context, uid types.UID) error {
	f.w.mu.Lock()
	gone := f.w.gone[uid]
	f.w.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-gone:
		return nil
	}
}

func (f fakePods) Resume(ended []*v1.Pod) {
	var names []string
	for _, p := range ended {
		names = append(names, string(p.UID))
	}
	f.w.note("resume %s", strings.Join(names, " "))
}

const (
	detected  = "event NodeShutdown: Shutdown manager detected shutdown event"
	cancelled = "event NodeShutdown: Shutdown manager detected shutdown cancellation"
	goesDown  = "changed to node is shutting down"
	isUp      = "changed to <nil>"
)

// TestShutdown holds the order and the times: each group is waited for, one that
// has ended makes the next one start at once, and one that hangs costs its period
// and no more.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, byPriority, "a b:10 db:1000 web:1000>db crit:2000001000")
		w.takes["a"], w.takes["web"], w.takes["crit"] = 3*time.Second, time.Hour, 2*time.Second
		w.active[1].Spec.TerminationGracePeriodSeconds = new(int64(5))
		w.want("0s allow 1m40s")
		w.wantHeld(1)
		w.turn(true)
		synctest.Wait()
		if w.Err() == nil {
			t.Error("the node is not told to go down")
		}
		time.Sleep(time.Minute)
		w.want("0s "+goesDown, "0s "+detected, "0s end a in 10s", "0s end b in 5s",
			"3s end web in 10s", // of 20 s, db gets the other half
			"13s end db in 10s", "13s end crit in 40s", "15s release")
		w.wantHeld(0)
		if got := testutil.ToFloat64(w.metrics.end) - testutil.ToFloat64(w.metrics.start); got != 15 {
			t.Errorf("the metrics say %v s", got)
		}
		w.stop()
		w.down = false // after the boot
		w.start(byPriority)
		if got := testutil.ToFloat64(w.metrics.end) - testutil.ToFloat64(w.metrics.start); got != 15 {
			t.Errorf("after a restart the metrics say %v s", got)
		}
	})
}

// TestCancelled holds that a shutdown that is called off ends no more pods, that
// those that were ended are told of, and that the next one is held back again.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, byPriority, "a b:1000")
		w.takes["a"] = time.Hour
		w.turn(true)
		time.Sleep(2 * time.Second)
		w.turn(false)
		time.Sleep(time.Minute)
		w.want("0s allow 1m40s", "0s "+goesDown, "0s "+detected, "0s end a in 10s", "2s "+cancelled, "2s "+isUp, "2s resume a", "2s allow 1m40s", "2s release")
		w.wantHeld(1)
		if err := w.Err(); err != nil {
			t.Error(err)
		}
		w.turn(true)
		time.Sleep(time.Minute)
		w.want("1m2s "+goesDown, "1m2s "+detected, "1m2s end a in 10s", "1m12s end b in 20s", "1m12s release")
	})
}

// TestConnectionLost holds that the bus may restart at any time: before a
// shutdown another inhibitor takes the place of the old one, during one the pods
// go on to end and the machine is let go, and what was missed is made up for.
func TestConnectionLost(t *testing.T) {
	away := errors.New("no bus")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, byPriority, "a")
		w.takes["a"] = 5 * time.Second
		w.drop(nil)
		synctest.Wait()
		if err := w.Fault(); err == nil {
			t.Error("nobody is told")
		}
		w.wantHeld(1)
		time.Sleep(2 * time.Second)
		w.want("0s allow 1m40s", "1s allow 1m40s", "1s release")
		w.wantHeld(1)
		if err := w.Fault(); err != nil {
			t.Errorf("fault is %v", err)
		}
		w.turn(true)
		time.Sleep(time.Second)
		w.drop(away)
		time.Sleep(10 * time.Second)
		w.want("2s "+goesDown, "2s "+detected, "2s end a in 10s", "7s release")
		w.turn(false)
		w.mu.Lock()
		w.refused["open"] = nil
		w.mu.Unlock()
		time.Sleep(2 * time.Second)
		w.want("14s "+cancelled, "14s "+isUp, "14s resume a", "14s allow 1m40s")
		w.wantHeld(1)
	})
}

// TestStartedLate holds that an agent that starts while the machine goes down
// ends its pods, though nobody waits for it.
func TestStartedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, "a")
		w.stop()
		w.turn(true)
		known := make(chan struct{})
		w.known = known
		w.start(byPriority)
		w.want("0s "+goesDown, "0s "+detected) // which pods there are is not known yet
		close(known)
		w.want("0s end a in 10s")
		w.wantHeld(0)
	})
}

// TestFaults holds that what fails is told and tried again, and that a machine
// whose manager does not wait long enough is held back all the same.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, "a")
		w.want() // off
		w.stop()
		w.refused["inhibit"] = errors.New("too many")
		w.start(byPriority)
		if err := w.Fault(); err == nil || !strings.Contains(err.Error(), "too many") {
			t.Errorf("fault is %v", err)
		}
		w.mu.Lock()
		w.refused = map[string]error{"allow": errors.New("read-only")}
		w.mu.Unlock()
		time.Sleep(2 * time.Second)
		w.wantHeld(1)
		if err := w.Fault(); err == nil || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("fault is %v", err)
		}
	})
}

// TestStopped holds that an agent that stops lets the machine go and ends no
// more pods.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, byPriority, "a b:1000")
		w.takes["a"] = time.Hour
		w.turn(true)
		synctest.Wait()
		w.stop()
		w.want("0s allow 1m40s", "0s "+goesDown, "0s "+detected, "0s end a in 10s", "0s release")
		w.wantHeld(0)
	})
}
