package syncloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is a loop among parts that do nothing but record what they are told.
type world struct {
	*Loop
	t        *testing.T
	events   chan observed.Event
	ended    chan struct{}
	decided  chan struct{}
	recorder *record.FakeRecorder
	sweepErr error

	mu      sync.Mutex
	log     []string
	infos   map[types.UID]lifecycle.Info
	runtime []observed.Pod
	listErr error
	resize  *allocation.Pending // what was told last
	steps   []string            // generations with memory that the workers got, and those that wait
	asked   []types.UID         // whose admission was asked for
	refused map[string]string   // by pod name: why it is not admitted
	stored  map[types.UID]v1.PodStatus
	slow    bool // pods that are killed take until they are ended
}

// Deliver gives the loop the full set of a source.
func (w *world) Deliver(ctx context.Context, source string, pods []*v1.Pod) {
	w.Loop.Deliver(ctx, desired.Delivery{Source: source, Pods: pods})
}

func newWorld(t *testing.T, running ...observed.Pod) *world {
	return newWorldOf(t, desired.New("file", "api"), running...)
}

// newWorldOf is newWorld with other sources.
func newWorldOf(t *testing.T, pods *desired.Pods, running ...observed.Pod) *world {
	w := newIdleWorld(t, pods, running...)
	runtest.Start(t, w.Run)
	return w
}

// newIdleWorld is newWorldOf, and does not run yet.
func newIdleWorld(t *testing.T, pods *desired.Pods, running ...observed.Pod) *world {
	w := &world{
		t: t, events: make(chan observed.Event), ended: make(chan struct{}, 1), decided: make(chan struct{}, 1), recorder: record.NewFakeRecorder(100),
		infos: map[types.UID]lifecycle.Info{}, runtime: running,
		refused: map[string]string{}, stored: map[types.UID]v1.PodStatus{},
	}
	w.Loop = New(Config{
		Log: slog.New(slog.DiscardHandler), Desired: pods,
		Workers: w, Statuses: w, Store: store{w}, Runtime: runtimeList{w}, Mirrors: w, Resizes: w, Recorder: w.recorder,
		Events: w.events, Ended: w.ended, Decided: w.decided, Admit: w.admit,
		Node: &v1.ObjectReference{Kind: "Node", Name: "n"}, Sweep: w.sweepAll, Known: func(uid types.UID) bool { return uid == "known" },
	})
	return w
}

func (w *world) record(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// want compares what was told, but for what is told again and again.
func (w *world) want(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(want, w.log, cmpopts.EquateEmpty()); diff != "" {
		w.t.Errorf("told (-want +got):\n%s", diff)
	}
	w.log = nil
}

func (w *world) Update(req lifecycle.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("%s %s", req.Kind, req.UID())
	if req.Orphan != nil {
		line = "orphan " + string(req.UID())
	}
	if req.Mirror != nil {
		line += " mirror=" + string(req.Mirror.UID)
	}
	w.log = append(w.log, line)
	if p := req.Pod; p != nil && p.Generation > 0 && len(p.Spec.Containers) > 0 {
		w.steps = append(w.steps, fmt.Sprintf("%d with %s", p.Generation, p.Spec.Containers[0].Resources.Limits.Memory()))
	}
	info := w.infos[req.UID()]
	info.UID, info.Pod = req.UID(), req.Pod
	switch req.Kind {
	case lifecycle.Create:
		info.State = lifecycle.Syncing
	case lifecycle.Update:
	case lifecycle.Kill:
		info.State = lifecycle.Finished
		if w.slow {
			info.State = lifecycle.Terminating
		}
	case lifecycle.Remove:
		info.State, info.Removed = lifecycle.Terminating, true
	}
	w.infos[req.UID()] = info
}

func (w *world) Poke(uid types.UID) { w.record("poke %s", uid) }

func (w *world) SyncKnown(func(types.UID) bool) {}

func (w *world) Snapshot() []lifecycle.Info {
	w.mu.Lock()
	defer w.mu.Unlock()
	var infos []lifecycle.Info
	for _, info := range w.infos {
		infos = append(infos, info)
	}
	return infos
}

// end makes a worker forget its pod.
func (w *world) end(uids ...types.UID) {
	w.mu.Lock()
	for _, uid := range uids {
		delete(w.infos, uid)
	}
	w.mu.Unlock()
	w.ended <- struct{}{}
}

func (w *world) Observe(p *v1.Pod) { w.record("observe %s", p.UID) }

func (w *world) ObserveMirror(p, m *v1.Pod) {
	if m != nil {
		w.record("mirror of %s is %s", p.UID, m.UID)
	}
}

func (w *world) Reject(p *v1.Pod, why, _ string) { w.record("reject %s %s", p.UID, why) }

func (w *world) SetPending(_ *v1.Pod, pending *allocation.Pending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resize = pending
	if pending != nil {
		w.steps = append(w.steps, fmt.Sprintf("%d waits", pending.Generation))
	}
}

func (w *world) Admit(uid types.UID) { w.record("admit %s", uid) }

func (w *world) admit(p *v1.Pod, others []*v1.Pod) Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, p.UID)
	switch why := w.refused[p.Name]; why {
	case "":
		return Verdict{}
	case "waits":
		return Verdict{Wait: true}
	case "victims": // all that are not static
		v := Verdict{Reason: "OutOfcpu", Lack: "cpu"}
		for _, o := range others {
			if !strings.HasPrefix(o.Name, "static") {
				v.Preempt = append(v.Preempt, o)
			}
		}
		slices.SortFunc(v.Preempt, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
		return v
	case "alone": // only without others
		var names []string
		for _, o := range others {
			names = append(names, o.Name)
		}
		slices.Sort(names)
		if len(others) == 0 {
			return Verdict{}
		}
		return Verdict{Reason: "OutOfcpu", Message: "beside " + strings.Join(names, ",")}
	default:
		return Verdict{Reason: why, Message: "no"}
	}
}

func (w *world) sweepAll(_ context.Context, known func(types.UID) bool) error {
	if !known("known") || known("other") {
		w.t.Error("the sweeper does not know what the workers do")
	}
	for _, o := range w.runtime {
		if !known(o.UID) {
			w.t.Errorf("the sweeper does not know %s, which the runtime has", o.UID)
		}
	}
	w.record("sweep")
	return w.sweepErr
}

func (w *world) Set(static, ending, mirrors []*v1.Pod, prune bool) {
	var names []string
	for what, pods := range map[string][]*v1.Pod{"static": static, "ending": ending, "mirror": mirrors} {
		for _, p := range pods {
			names = append(names, what+" "+string(p.UID))
		}
	}
	slices.Sort(names)
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf("mirrors [%s] %v", strings.Join(names, ", "), prune)
	w.log = slices.DeleteFunc(w.log, func(l string) bool { return l == line })
	w.log = append(w.log, line)
}

type store struct{ *world }

func (s store) Get(uid types.UID) (v1.PodStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status, ok := s.stored[uid]
	return status, ok
}

func (s store) End(uid types.UID, reason, message string, disrupted bool) {
	s.record("end %s: %s: %s, %v", uid, reason, message, disrupted)
}

func (s store) Forget(keep func(types.UID) bool) {
	s.mu.Lock()
	var gone []string
	for uid := range s.stored {
		gone = append(gone, string(uid))
	}
	s.mu.Unlock()
	for _, uid := range gone {
		if !keep(types.UID(uid)) {
			s.record("forget %s", uid)
			s.mu.Lock()
			delete(s.stored, types.UID(uid))
			s.mu.Unlock()
		}
	}
}

type runtimeList struct{ *world }

func (r runtimeList) Pods() []observed.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runtime
}

func (r runtimeList) Healthy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listErr
}

func pod(uid, name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), ResourceVersion: uid}}
}

func static(uid, name string) *v1.Pod {
	p := pod(uid, name)
	p.ResourceVersion = ""
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": uid}
	return p
}

func mirror(uid, name, hash string) *v1.Pod {
	p := pod(uid, name)
	p.Annotations = map[string]string{"kubernetes.io/config.mirror": hash}
	return p
}

func has(uid, name string, state observed.State) observed.Pod {
	return observed.Pod{
		UID: types.UID(uid), Namespace: "default", Name: name,
		Containers: []observed.Container{{Name: "c", State: state}},
	}
}

func TestLifeOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx := t.Context()
		w.Deliver(ctx, "file", []*v1.Pod{static("s", "web")})
		w.want("create s", "mirrors [static s] false")
		w.Deliver(ctx, "api", []*v1.Pod{pod("a", "db"), mirror("m", "web", "s")})
		w.want("mirror of s is m", "observe a", "create a", "mirrors [mirror m, static s] true")

		w.events <- observed.Event{UID: "a", Kind: observed.PodChanged}
		w.want("poke a")

		edited := pod("a", "db")
		edited.ResourceVersion, edited.Labels = "2", map[string]string{"x": "y"}
		w.Deliver(ctx, "api", []*v1.Pod{edited, mirror("m", "web", "s")})
		w.want("observe a", "update a")
		told := edited.DeepCopy()
		told.ResourceVersion, told.Status.Phase = "3", v1.PodRunning
		w.Deliver(ctx, "api", []*v1.Pod{told, mirror("m", "web", "s")})
		w.want("observe a")

		w.mu.Lock()
		w.stored["a"] = v1.PodStatus{Message: "newest"}
		w.mu.Unlock()
		var names []string
		for _, p := range w.Pods() {
			names = append(names, p.Name+" "+p.Status.Message)
		}
		if diff := cmp.Diff([]string{"db newest", "web "}, names); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
		if p, ok := w.PodByName("default", "web"); !ok || p.UID != "s" {
			t.Errorf("web = %v", p)
		}
		if p, ok := w.PodByUID("a"); !ok || p.Status.Message != "newest" {
			t.Errorf("a = %v", p)
		}

		ending := told.DeepCopy()
		ending.ResourceVersion, ending.DeletionTimestamp = "4", &metav1.Time{Time: time.Now()}
		w.Deliver(ctx, "api", []*v1.Pod{ending, mirror("m", "web", "s")})
		w.want("observe a", "update a")
		w.Deliver(ctx, "api", []*v1.Pod{mirror("m", "web", "s")})
		w.want("remove a")
		w.Deliver(ctx, "file", nil)
		w.want("remove s", "mirrors [ending s, mirror m] true")
		w.end("a", "s")
		w.want("forget a", "mirrors [mirror m] true", "sweep")
	})
}

func TestNothingGoesBeforeAllSourcesAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, has("a", "db", observed.Running), has("x", "old", observed.Exited))
		w.stored["a"] = v1.PodStatus{}
		w.Deliver(t.Context(), "file", nil)
		time.Sleep(time.Minute)
		w.want("mirrors [] false")
		w.Deliver(t.Context(), "api", []*v1.Pod{pod("a", "db")})
		time.Sleep(2 * time.Second)
		w.want("observe a", "create a", "orphan x", "mirrors [] true", "sweep")
	})
}

// TestSweepFails holds that what cannot be swept is tried again, and told once.
func TestSweepFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.sweepErr = errors.New("device or resource busy")
		w.Deliver(t.Context(), "file", nil)
		w.Deliver(t.Context(), "api", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.mu.Lock(); !slices.Contains(w.log, "sweep") {
			t.Error("nothing was swept")
		}
		w.mu.Unlock()
		if got := len(w.recorder.Events); got != 1 {
			t.Fatalf("%d events, want one", got)
		}
		if got, want := <-w.recorder.Events, "Warning ContainerGCFailed device or resource busy"; got != want {
			t.Errorf("event %q, want %q", got, want)
		}
	})
}

func TestRuntimeIsListedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newIdleWorld(t, desired.New("file", "api"))
		w.listErr = errors.New("not yet")
		runtest.Start(t, w.Run)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if w.Healthy() == nil {
			t.Error("healthy before anything was listed")
		}
		w.Deliver(ctx, "file", nil)
		if ctx.Err() == nil {
			t.Error("took a set before the runtime was listed")
		}
		w.mu.Lock()
		w.listErr = nil
		w.mu.Unlock()
		w.Deliver(t.Context(), "file", nil)
		if err := w.Healthy(); err != nil {
			t.Error(err)
		}
	})
}

func TestAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, has("runs", "runs", observed.Running), has("ran", "ran", observed.Exited))
		w.refused = map[string]string{"runs": "TooBig", "ran": "TooBig", "big": "alone", "lone": "alone", "gone": "TooBig", "done": "TooBig"}
		gone, done := pod("gone", "gone"), pod("done", "done")
		gone.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		done.Status.Phase = v1.PodSucceeded
		w.Deliver(t.Context(), "api", []*v1.Pod{pod("ran", "ran"), gone, done, pod("runs", "runs")})
		w.want(
			"observe runs", "create runs", // it runs: adopted, and counted first
			"observe ran", "reject ran TooBig", "kill ran",
			"observe gone", "create gone", // nothing to admit: they only end
			"observe done", "create done",
		)
		w.Deliver(t.Context(), "file", []*v1.Pod{static("big", "big")})
		w.want("reject big OutOfcpu", "mirrors [static big] true")
		if got := <-w.recorder.Events; got != "Warning TooBig no" {
			t.Errorf("event = %q", got)
		}
		if got := <-w.recorder.Events; got != "Warning OutOfcpu beside gone,runs" {
			t.Errorf("event = %q", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.recorder.Events) != 0 {
			t.Errorf("event again: %q", <-w.recorder.Events)
		}
		w.mu.Lock()
		w.log = nil
		w.mu.Unlock()

		// There is room: the static pod starts, the other one stays rejected.
		w.Deliver(t.Context(), "api", nil)
		synctest.Wait()
		w.end("runs", "gone", "ran", "done")
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		i := slices.Index(w.log, "admit big")
		if i < 0 || !slices.Contains(w.log[i:], "create big") || slices.Contains(w.log, "create ran") {
			t.Errorf("told %q", w.log)
		}
	})
}

func TestEditWhileAgentWasDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, has("old", "web", observed.Running), has("db", "db", observed.Running))
		w.Deliver(t.Context(), "file", []*v1.Pod{static("new", "web"), static("db", "db")})
		w.want("create db", "orphan old", "create new", "mirrors [static db, static new] false")
	})
}

func TestPutBackAndRejectedEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Deliver(t.Context(), "api", nil)
		w.Deliver(t.Context(), "file", []*v1.Pod{static("s", "web")})
		synctest.Wait()
		w.end("s") // its worker has forgotten it, though it is wanted
		synctest.Wait()
		w.mu.Lock()
		if n := len(slices.DeleteFunc(w.log, func(l string) bool { return l != "create s" })); n != 2 {
			t.Errorf("created %d times; want twice", n)
		}
		w.log = nil
		w.refused["db"] = "Unsupported"
		w.mu.Unlock()

		w.Deliver(t.Context(), "file", []*v1.Pod{static("s", "web"), static("d", "db")})
		w.want("reject d Unsupported", "mirrors [static d, static s] true")
		w.mu.Lock()
		w.refused = map[string]string{}
		w.mu.Unlock()
		edited := static("d", "db")
		edited.Labels = map[string]string{"fixed": "yes"}
		w.Deliver(t.Context(), "file", []*v1.Pod{static("s", "web"), edited})
		w.want("admit d", "create d", "mirrors [static d, static s] true")
	})
}

func TestMirrorOfOlderVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Deliver(t.Context(), "file", []*v1.Pod{static("s1", "web")})
		w.Deliver(t.Context(), "api", []*v1.Pod{mirror("m", "web", "s1")})
		w.want("create s1", "mirrors [static s1] false", "mirror of s1 is m", "mirrors [mirror m, static s1] true")
		w.Deliver(t.Context(), "file", []*v1.Pod{static("s2", "web")})
		w.want("remove s1", "create s2", "mirrors [ending s1, mirror m, static s2] true")
		newer := mirror("m", "web", "s1")
		newer.ResourceVersion, newer.Status.Phase = "9", v1.PodRunning
		w.Deliver(t.Context(), "api", []*v1.Pod{newer})
		w.want("mirror of s1 is m", "mirrors [ending s1, mirror m, static s2] true")
	})
}

func TestReadinessGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := pod("a", "web")
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb"}}
		w.Deliver(t.Context(), "api", []*v1.Pod{p})
		p = p.DeepCopy()
		p.ResourceVersion, p.Status.Conditions = "2", []v1.PodCondition{{Type: "lb", Status: v1.ConditionTrue}}
		w.Deliver(t.Context(), "api", []*v1.Pod{p})
		w.want("observe a", "create a", "observe a", "poke a")
	})
}

func TestDuplicatesAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for range 3 {
			w.Loop.Deliver(t.Context(), desired.Delivery{
				Source: "file", Pods: []*v1.Pod{static("a", "web"), static("b", "web")}, Places: []string{"web.yaml:1", "copy.yaml:7"},
			})
		}
		synctest.Wait()
		want := `Warning FailedValidation duplicate pod name "default/web": copy.yaml:7 (source "file") is left out, as web.yaml:1 (source "file") comes first; give one of them another name`
		if got := <-w.recorder.Events; got != want || len(w.recorder.Events) > 0 {
			t.Errorf("events: %q and %d more, want %q", got, len(w.recorder.Events), want)
		}
		if got := w.Faults(); len(got) != 1 || got[0].Object != "Pod default/web" || !strings.HasPrefix(got[0].Message, "duplicate pod name") || got[0].Since.IsZero() {
			t.Errorf("faults = %v", got)
		}
	})
}

func TestStalledLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Log: slog.New(slog.DiscardHandler)})
		l.markTurn()
		time.Sleep(5 * time.Minute)
		if err := l.Healthy(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if l.Healthy() == nil {
			t.Error("a stalled loop is healthy")
		}
	})
}
