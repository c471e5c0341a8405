package podstatus

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

// A world is a Manager, its API and what the workers say.
type world struct {
	*Manager
	t           *testing.T
	api         *fakeAPI
	terminating atomic.Bool
	running     atomic.Bool // containers may run
	stop        func()
}

func newWorld(t *testing.T, pods ...*v1.Pod) *world {
	w := &world{t: t, api: newFakeAPI(t, pods...)}
	w.running.Store(true)
	w.Manager = New(Config{
		Log: slog.New(slog.DiscardHandler), Pods: w.api,
		Terminating:      func(types.UID) bool { return w.terminating.Load() },
		CouldHaveRunning: func(types.UID) bool { return w.running.Load() },
	})
	w.stop = runtest.Start(t, w.Run)
	return w
}

func (w *world) wantCalls(want ...string) {
	w.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, w.api.take()); diff != "" {
		w.t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestLifeInAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pod(v1.RestartPolicyAlways, "a"))
		defer func() { w.stop() }()
		p := w.api.get("web")
		w.Observe(p)
		w.wantCalls() // nothing is known of it

		w.Report(p, nil, nil)
		w.wantCalls("patch web Pending: <nil>")
		w.Report(p, nil, nil)
		w.wantCalls()
		w.Report(p, seen("a:running"), nil)
		w.wantCalls("patch web Running: <nil>")
		w.Observe(w.api.get("web")) // its own echo
		w.wantCalls()

		// Somebody else writes our fields.
		changed := w.api.get("web").DeepCopy()
		changed.Status.Phase = v1.PodFailed
		changed.Status.Conditions = append(changed.Status.Conditions, v1.PodCondition{Type: "lb", Status: v1.ConditionTrue})
		w.Observe(w.api.put(changed))
		w.wantCalls("patch web Running: <nil>")
		if c := w.api.get("web").Status.Conditions; len(c) != 6 {
			t.Errorf("conditions = %v; want ours and the other one", c)
		}

		// Deleted: the last phase is told when nothing runs, the pod goes when
		// nothing is left.
		ending := w.api.get("web").DeepCopy()
		ending.DeletionTimestamp = pod(v1.RestartPolicyAlways, "a", deleting).DeletionTimestamp
		ending = w.api.put(ending)
		w.Observe(ending)
		w.terminating.Store(true)
		w.Report(ending, seen("dead a:0"), nil)
		w.wantCalls("patch web : <nil>") // without a phase
		if got := w.api.get("web").Status.Phase; got != v1.PodRunning {
			t.Errorf("phase = %s while containers may run", got)
		}
		w.running.Store(false)
		w.Report(ending, seen("dead a:0"), nil)
		w.wantCalls("patch web Succeeded: <nil>")
		w.SetTerminated(ending)
		w.wantCalls("delete web: <nil>")
		w.Forget(func(types.UID) bool { return false })
		if _, ok := w.Get("u"); ok {
			t.Error("not forgotten")
		}
	})
}

func TestFinishedBeforeItIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pod(v1.RestartPolicyNever, "a"))
		defer func() { w.stop() }()
		p := w.api.get("web")
		w.Observe(p)
		w.running.Store(false)
		w.Report(p, seen("dead a:0"), nil)
		w.SetTerminated(p)
		w.wantCalls("patch web Succeeded: <nil>")
		ending := w.api.get("web").DeepCopy()
		ending.DeletionTimestamp = pod(v1.RestartPolicyAlways, "a", deleting).DeletionTimestamp
		w.Observe(w.api.put(ending))
		w.wantCalls("delete web: <nil>")
	})
}

func TestAPIAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pod(v1.RestartPolicyAlways, "a"))
		defer func() { w.stop() }()
		w.api.set(errors.New("no route"), 0)
		p := w.api.get("web")
		w.Observe(p)
		w.Report(p, nil, nil)
		w.wantCalls("patch web Pending: no route")
		w.Report(p, seen("a:running"), nil) // joins what is waiting
		w.wantCalls()
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls := len(w.api.take()); calls < 8 || calls > 16 {
			t.Errorf("%d calls in a minute", calls)
		}
		w.api.set(nil, 0)
		time.Sleep(10 * time.Second)
		w.wantCalls("patch web Running: <nil>")
	})
}

func TestPodReplacedInAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pod(v1.RestartPolicyAlways, "a"))
		defer func() { w.stop() }()
		p := w.api.get("web")
		w.Observe(p)
		other := p.DeepCopy()
		other.UID = "another"
		w.api.put(other)
		w.Report(p, seen("a:running"), nil)
		synctest.Wait()
		if got := w.api.get("web").Status.Phase; got != "" {
			t.Errorf("a pod of another UID got the phase %s", got)
		}
		w.api.take()
		w.Report(p, seen("a:1"), nil)
		w.wantCalls() // not known to the API any more
	})
}

func TestStatic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() { w.stop() }()
		p := pod(v1.RestartPolicyNever, "a", static)
		w.Report(p, seen("a:running"), nil)
		w.wantCalls() // no mirror yet
		mirror := p.DeepCopy()
		mirror.UID = "mirror"
		mirror.Annotations["kubernetes.io/config.mirror"] = "h1"
		w.ObserveMirror(p, w.api.put(mirror))
		w.wantCalls("patch web Running: <nil>")
		w.ObserveMirror(p, nil)
		w.running.Store(false)
		w.Report(p, seen("dead a:0"), nil)
		w.SetTerminated(p)
		w.wantCalls()

		// The same UID is put back: a new life, whatever its mirror says.
		w.running.Store(true)
		mirror.Status.Phase = v1.PodSucceeded
		w.ObserveMirror(p, w.api.put(mirror))
		w.wantCalls("patch web : <nil>")
		if got := w.Report(p, nil, nil); got.Phase != v1.PodPending {
			t.Errorf("phase of the new instance = %s", got.Phase)
		}
		w.wantCalls("patch web Pending: <nil>")
	})
}

func TestRejectAndAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pod(v1.RestartPolicyAlways, "a"))
		defer func() { w.stop() }()
		w.running.Store(false)
		p := w.api.get("web")
		w.Observe(p)
		w.Reject(p, "OutOfcpu", "Node didn't have enough resource: cpu")
		w.wantCalls("patch web Failed: <nil>")
		got := w.Report(p, nil, nil) // its worker ends it
		if got.Phase != v1.PodFailed || got.Reason != "OutOfcpu" || got.Message != "Pod was rejected: Node didn't have enough resource: cpu" || got.StartTime.IsZero() {
			t.Errorf("status = %+v", got)
		}
		w.Admit("u")
		w.wantCalls("patch web Pending: <nil>")
		w.running.Store(true)
		if got := w.Report(p, seen("a:running"), nil); got.Phase != v1.PodRunning || got.Reason != "" {
			t.Errorf("after Admit: %s %s", got.Phase, got.Reason)
		}
		w.wantCalls("patch web Running: <nil>")
	})
}

func TestManyAtOnceAndFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.set(nil, 100*time.Millisecond)
		for i := range 100 {
			p := pod(v1.RestartPolicyAlways, "a")
			p.Name, p.UID = fmt.Sprintf("web%d", i), types.UID(fmt.Sprint(i))
			p = w.api.put(p)
			w.Observe(p)
			began := time.Now()
			w.Report(p, seen("a:running"), nil)
			if time.Since(began) > 0 {
				t.Fatal("Report waited for the API")
			}
		}
		time.Sleep(50 * time.Millisecond) // the first ones are on their way
		w.stop()                          // and the others are sent before it returns
		if got := len(w.api.take()); got < 100 {
			t.Errorf("%d statuses were sent; want all", got)
		}
		if w.api.most > 8 {
			t.Errorf("%d calls at once", w.api.most)
		}
		for name, p := range w.api.pods {
			if p.Status.Phase != v1.PodRunning {
				t.Errorf("%s is %q", name, p.Status.Phase)
			}
		}
	})
}

func TestFlushEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pod(v1.RestartPolicyAlways, "a"))
		w.api.set(nil, time.Hour)
		p := w.api.get("web")
		w.Observe(p)
		w.Report(p, nil, nil)
		synctest.Wait()
		began := time.Now()
		w.stop()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("stopping took %v", took)
		}
	})
}

func TestDeadlineOfManager(t *testing.T) {
	m := New(Config{Log: slog.New(slog.DiscardHandler)})
	p := pod(v1.RestartPolicyAlways, "a", func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(60)) })
	if _, ok := m.Deadline(p); ok {
		t.Error("a pod that is not known has a deadline")
	}
	s := m.Report(p, &observed.Status{}, nil)
	if at, ok := m.Deadline(p); !ok || !at.Equal(s.StartTime.Add(time.Minute)) {
		t.Errorf("deadline = %v, %v", at, ok)
	}
}

// TestResizeInAPI holds that the conditions of a resize come and go.
func TestResizeInAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pod(v1.RestartPolicyAlways, "a"))
		defer func() { w.stop() }()
		p := w.api.get("web")
		w.Observe(p)
		report := func(pending, progress bool) {
			t.Helper()
			w.Report(p, seen("a:running"), nil)
			synctest.Wait()
			status := w.api.get("web").Status
			for kind, want := range map[v1.PodConditionType]bool{v1.PodResizePending: pending, v1.PodResizeInProgress: progress} {
				if _, c := podutil.GetPodCondition(&status, kind); (c != nil) != want {
					t.Errorf("%s: condition = %v", kind, c)
				}
			}
		}
		report(false, false)
		wanted := p.DeepCopy()
		wanted.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
		w.SetPending(wanted, &allocation.Pending{Reason: v1.PodReasonDeferred, Message: "no room"})
		report(true, false)
		w.SetPending(wanted, nil) // granted, and the worker has not got it yet
		report(true, false)
		p = wanted
		w.SetProgress(p.UID, &allocation.Progress{})
		report(false, true)
		w.SetProgress(p.UID, nil)
		report(false, false)
	})
}
