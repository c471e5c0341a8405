package podworker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

// start runs workers until the test's end.
func start(t *testing.T, cfg Config) *Workers {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	w := New(cfg)
	runtest.Start(t, w.Run)
	return w
}

// moments is a cache that records what moments it was asked for and answers
// after a second, or never.
type moments struct {
	mu    sync.Mutex
	asked []time.Time
	never bool
	err   error
}

func (m *moments) GetNewerThan(ctx context.Context, uid types.UID, moment time.Time) (*observed.Status, error) {
	m.mu.Lock()
	m.asked = append(m.asked, moment)
	never, err := m.never, m.err
	m.mu.Unlock()
	if never {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Second):
		return &observed.Status{UID: uid}, err
	}
}

func TestWaitsForNewerStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := &moments{}
		var refreshed []types.UID
		var mu sync.Mutex
		w := start(t, Config{Syncer: newFakeSyncer(t), Cache: cache, Refresh: func(uid types.UID) {
			mu.Lock()
			defer mu.Unlock()
			refreshed = append(refreshed, uid)
		}})
		began := time.Now()
		w.Update(lifecycle.Request{Kind: lifecycle.Create, Pod: testPod("a", "web")})
		time.Sleep(time.Second)
		synctest.Wait()
		ended := time.Now()
		time.Sleep(5 * time.Second)
		w.Poke("a")
		synctest.Wait()

		cache.mu.Lock()
		defer cache.mu.Unlock()
		if len(cache.asked) != 2 || !cache.asked[0].IsZero() || !cache.asked[1].Equal(ended) {
			t.Errorf("asked for %v; want the zero time, then the end of the first step (%v after the start)", cache.asked, ended.Sub(began))
		}
		mu.Lock()
		defer mu.Unlock()
		if len(refreshed) != 1 || refreshed[0] != "a" {
			t.Errorf("refreshed %v after one step; want [a]", refreshed)
		}
	})
}

// TestRemains holds that everybody learns of a pod's end before what is left of it
// is removed, and that a failure of that keeps nobody waiting.
func TestRemains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		syncer := newFakeSyncer(t)
		syncer.answers["a remains"] = "cannot be removed"
		told := make(chan []string, 1) // the steps until then
		w := start(t, Config{Syncer: syncer, Cache: &moments{}, Finished: func(*v1.Pod) { told <- syncer.steps() }})
		w.Update(lifecycle.Request{Kind: lifecycle.Create, Pod: testPod("a", "web")})
		time.Sleep(time.Minute)
		w.Update(lifecycle.Request{Kind: lifecycle.Kill, Pod: testPod("a", "web")})
		time.Sleep(time.Minute)
		if before := <-told; before[len(before)-1] != "a terminated" {
			t.Errorf("told after %q, want right after it terminated", before)
		}
		if got := syncer.steps(); got[len(got)-1] != "a remains: cannot be removed" || !w.IsFinished("a") {
			t.Errorf("steps %q, finished %v", got, w.IsFinished("a"))
		}
	})
}

func TestStatusThatNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := &moments{never: true}
		recorder := record.NewFakeRecorder(10)
		syncer := newFakeSyncer(t)
		w := start(t, Config{Syncer: syncer, Cache: cache, Recorder: recorder, StatusTimeout: 3 * time.Second})
		w.Update(lifecycle.Request{Kind: lifecycle.Create, Pod: testPod("a", "web")})
		time.Sleep(2 * time.Second)
		w.Update(lifecycle.Request{Kind: lifecycle.Remove, Pod: testPod("a", "web")}) // interrupts, without an event
		synctest.Wait()
		if len(recorder.Events) != 0 {
			t.Errorf("event %q for an interrupted wait", <-recorder.Events)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := <-recorder.Events; !strings.HasPrefix(got, "Warning FailedSync error determining status: ") {
			t.Errorf("event = %q", got)
		}
		cache.mu.Lock()
		cache.never = false
		cache.mu.Unlock()
		if err := w.WaitFinished(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if got := w.Snapshot(); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
	})
}

func TestRetryAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(7 * time.Second)
		syncer := newFakeSyncer(t)
		w := start(t, Config{
			Syncer: syncer, Cache: freshCache{},
			RetryAt: func(*v1.Pod) (time.Time, bool) { return at, true },
		})
		w.Update(lifecycle.Request{Kind: lifecycle.Create, Pod: testPod("a", "job")})
		synctest.Wait()
		syncer.answer("a sync", "terminal")
		time.Sleep(7*time.Second - 1)
		synctest.Wait()
		if w.IsTerminating("a") {
			t.Fatal("looked at before the time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !w.IsFinished("a") {
			t.Errorf("not looked at at the time: %v", w.Snapshot())
		}
	})
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		syncer := newFakeSyncer(t)
		w := start(t, Config{Syncer: syncer, Cache: freshCache{}})
		began := time.Now()
		syncer.answer("a sync", "no cgroup")
		w.Update(lifecycle.Request{Kind: lifecycle.Create, Pod: testPod("a", "job")})
		w.Update(lifecycle.Request{Kind: lifecycle.Create, Pod: testPod("b", "fine")})
		synctest.Wait()
		want := []fault.Fault{{Object: "Pod default/job", Message: "no cgroup", Since: began}}
		for range 3 {
			if diff := cmp.Diff(w.Faults(), want); diff != "" {
				t.Errorf("faults: got -, want +:\n%s", diff)
			}
			time.Sleep(20 * time.Second)
		}
		syncer.answer("a sync", "ok")
		time.Sleep(20 * time.Second)
		if got := w.Faults(); len(got) != 0 {
			t.Errorf("faults: %v", got)
		}
	})
}

func TestQueriesBeforeAndAfterAllIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		syncer := newFakeSyncer(t)
		syncer.answer("a terminating", "block")
		w := start(t, Config{Syncer: syncer, Cache: freshCache{}})
		if !w.CouldHaveRunning("x") || !w.Known("x") || w.IsFinished("x") || w.IsTerminating("x") {
			t.Error("an unknown pod must be taken for running before all sources are seen")
		}
		w.Update(lifecycle.Request{Kind: lifecycle.Create, Pod: testPod("a", "web")})
		synctest.Wait()
		w.SyncKnown(func(types.UID) bool { return false })
		if w.CouldHaveRunning("x") || w.Known("x") || !w.IsFinished("x") {
			t.Error("an unknown pod cannot run once all sources are seen")
		}
		synctest.Wait()
		if !w.IsTerminating("a") || !w.CouldHaveRunning("a") || !w.Known("a") {
			t.Errorf("a pod that nobody wants: %v", w.Snapshot())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.WaitFinished(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitFinished of a running pod = %v", err)
		}
		syncer.unblock("a terminating")
		if err := w.WaitFinished(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		select {
		case <-w.Ended():
		case <-time.After(time.Second):
			t.Error("nobody was told that the pod ended")
		}
	})
}

// TestRandom throws requests at the workers and checks, in the syncer, what
// must hold at all times, and at the end that everything has ended.
func TestRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		m := &model{t: t, lives: map[types.UID]*life{}, rnd: rand.New(rand.NewPCG(seed, 2))}
		w := start(t, Config{Syncer: m, Cache: freshCache{}})
		uids := []string{"a", "b", "c", "d", "e", "f"}
		names := map[string]string{"a": "web", "b": "web", "c": "web", "d": "db", "e": "db", "f": "api"}
		wanted := map[types.UID]bool{}
		for range 3000 {
			uid := uids[rnd.IntN(len(uids))]
			pod := testPod(uid, names[uid])
			if uid != "f" {
				pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
			}
			switch op := rnd.IntN(12); {
			case op < 4 && !wanted[pod.UID]:
				wanted[pod.UID] = true
				m.allow(pod.UID)
				w.Update(lifecycle.Request{Kind: lifecycle.Create, Pod: pod})
			case op < 4 && wanted[pod.UID]:
				w.Update(lifecycle.Request{Kind: lifecycle.Update, Pod: pod})
			case op < 6:
				delete(wanted, pod.UID)
				w.Update(lifecycle.Request{Kind: lifecycle.Remove, Pod: pod, Grace: new(rnd.Int64N(10))})
			case op == 6 && wanted[pod.UID]:
				w.Update(lifecycle.Request{Kind: lifecycle.Kill, Pod: pod})
			case op == 7:
				w.SyncKnown(func(uid types.UID) bool { return wanted[uid] })
			case op == 8 && !wanted[pod.UID]:
				w.Update(lifecycle.Request{Kind: lifecycle.Remove, Orphan: &lifecycle.Orphan{
					UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name,
				}})
			case op < 10:
				w.Poke(pod.UID)
			default:
				time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
			}
		}
		m.calm()
		w.SyncKnown(func(types.UID) bool { return false })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if left := w.Snapshot(); len(left) != 0 {
			t.Errorf("left at the end: %+v", left)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.mu.turns) != 0 || len(w.mu.idle) != 0 {
			t.Errorf("left at the end: turns %v, idle %v", w.mu.turns, w.mu.idle)
		}
	})
}

// A model is a syncer that fails, blocks and ends pods at random, and checks
// each step against the life of its pod.
type model struct {
	t *testing.T

	mu    sync.Mutex
	rnd   *rand.Rand
	lives map[types.UID]*life
	quiet bool
}

type life struct {
	name    string
	busy    bool
	running bool // SyncPod was called, and SyncTerminating has not returned nil
	dead    bool // has ended, and its source has not put it back
}

func (m *model) allow(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.life(uid).dead = false
}

func (m *model) calm() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quiet = true
}

func (m *model) life(uid types.UID) *life {
	if m.lives[uid] == nil {
		m.lives[uid] = &life{}
	}
	return m.lives[uid]
}

// step makes one step: ends says how the pod's life is after it.
func (m *model) step(ctx context.Context, uid types.UID, check, done func(*life)) error {
	m.mu.Lock()
	l := m.life(uid)
	if l.busy {
		m.t.Errorf("%s: two steps at once", uid)
	}
	l.busy = true
	check(l)
	luck, pause := m.rnd.IntN(10), time.Duration(m.rnd.IntN(3000))*time.Millisecond
	if m.quiet {
		luck = 9
	}
	m.mu.Unlock()
	var err error
	switch {
	case luck < 2:
		err = errors.New("bad luck")
	case luck < 6:
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(pause):
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l.busy = false
	if err == nil {
		done(l)
	}
	return err
}

func (m *model) SyncPod(ctx context.Context, pod, _ *v1.Pod, _ *observed.Status) (terminal bool, err error) {
	err = m.step(ctx, pod.UID, func(l *life) {
		if l.dead {
			m.t.Errorf("%s: runs again after it ended", pod.UID)
		}
		l.running, l.name = true, pod.Name
		for uid, other := range m.lives {
			if uid != pod.UID && other.running && other.name == pod.Name {
				m.t.Errorf("%s: starts while %s of the same name runs", pod.UID, uid)
			}
		}
	}, func(*life) { terminal = m.rnd.IntN(20) == 0 })
	return terminal, err
}

func (m *model) SyncTerminating(ctx context.Context, pod *v1.Pod, _ *observed.Status, grace *int64) error {
	if *grace < 1 {
		m.t.Errorf("%s: grace period of %d s", pod.UID, *grace)
	}
	return m.step(ctx, pod.UID, func(*life) {}, func(l *life) { l.running = false })
}

func (m *model) SyncTerminated(ctx context.Context, pod *v1.Pod, _ *observed.Status) error {
	return m.step(ctx, pod.UID, func(l *life) {
		if l.running {
			m.t.Errorf("%s: terminated while it runs", pod.UID)
		}
	}, func(*life) {})
}

func (m *model) SyncRemains(ctx context.Context, pod *v1.Pod, _ *observed.Status) error {
	return m.step(ctx, pod.UID, func(l *life) {
		if l.running {
			m.t.Errorf("%s: removed while it runs", pod.UID)
		}
	}, func(*life) {})
}

func (m *model) SyncOrphan(ctx context.Context, orphan observed.Pod) error {
	return m.step(ctx, orphan.UID, func(l *life) {
		if l.running {
			m.t.Errorf("%s: taken for an orphan while it runs", orphan.UID)
		}
	}, func(*life) {})
}
