package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func static(name, hash string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(hash),
		Annotations: map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": hash},
	}}
}

func mirrorOf(name, hash, uid string) *v1.Pod {
	m := static(name, hash)
	m.UID = types.UID(uid)
	m.Annotations["kubernetes.io/config.mirror"] = hash
	return m
}

func going(p *v1.Pod) *v1.Pod {
	p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	return p
}

func TestPlan(t *testing.T) {
	type pods = []*v1.Pod
	tests := []struct {
		name    string
		picture picture
		want    string
	}{
		{"nothing", picture{prune: true}, ""},
		{"new", picture{static: pods{static("web", "h1")}}, "create default/web h1"},
		{"there", picture{static: pods{static("web", "h1")}, mirrors: pods{mirrorOf("web", "h1", "m")}}, ""},
		{"being deleted", picture{static: pods{static("web", "h1")}, mirrors: pods{going(mirrorOf("web", "h1", "m"))}}, "remove default/web m"},
		{"older version", picture{static: pods{static("web", "h2")}, mirrors: pods{mirrorOf("web", "h1", "m")}}, "remove default/web m"},
		{
			"older version still ends",
			picture{static: pods{static("web", "h2")}, ending: pods{static("web", "h1")}, mirrors: pods{mirrorOf("web", "h1", "m")}},
			"",
		},
		{
			"older version still ends and has no mirror any more",
			picture{static: pods{static("web", "h2")}, ending: pods{static("web", "h1")}},
			"",
		},
		{
			"older version still ends, its mirror is of a third",
			picture{static: pods{static("web", "h2")}, ending: pods{static("web", "h1")}, mirrors: pods{mirrorOf("web", "h0", "m")}},
			"remove default/web m",
		},
		{"ends", picture{ending: pods{static("web", "h1")}, mirrors: pods{mirrorOf("web", "h1", "m")}, prune: true}, ""},
		{"has ended", picture{mirrors: pods{mirrorOf("web", "h1", "m")}, prune: true}, "remove default/web m"},
		{"of a source that was not seen", picture{mirrors: pods{mirrorOf("web", "h1", "m")}}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, a := range plan(&test.picture) {
				if a.create != nil {
					got = append(got, "create "+a.name+" "+string(a.create.UID))
				} else {
					got = append(got, "remove "+a.name+" "+string(a.remove.UID))
				}
			}
			if s := strings.Join(got, ", "); s != test.want {
				t.Errorf("got %q, want %q", s, test.want)
			}
		})
	}
}

// fakeAPI keeps pods by name, as far as this package uses the API.
type fakeAPI struct {
	typedv1.PodInterface // nil: every other method panics

	mu   sync.Mutex
	pods map[string]*v1.Pod
	next int
	fail error
	log  []string
}

func (f *fakeAPI) Pods(string) typedv1.PodInterface { return f }

func (f *fakeAPI) done(call, name string, err error) error {
	f.log = append(f.log, strings.TrimSpace(fmt.Sprintf("%s %s %v", call, name, err)))
	return err
}

func (f *fakeAPI) Create(_ context.Context, p *v1.Pod, _ metav1.CreateOptions) (*v1.Pod, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.done("create", p.Name, f.fail)
	}
	if f.pods[p.Name] != nil {
		return nil, f.done("create", p.Name, apierrors.NewAlreadyExists(v1.Resource("pods"), p.Name))
	}
	if len(p.OwnerReferences) != 1 || p.OwnerReferences[0].UID != "node-uid" || p.UID != "" {
		return nil, f.done("create", p.Name, fmt.Errorf("owners %v, UID %q", p.OwnerReferences, p.UID))
	}
	p = p.DeepCopy()
	f.next++
	p.UID = types.UID(fmt.Sprintf("m%d", f.next))
	f.pods[p.Name] = p
	return p, f.done("create", p.Name, nil)
}

func (f *fakeAPI) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1.Pod, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pods[name] == nil {
		return nil, apierrors.NewNotFound(v1.Resource("pods"), name)
	}
	return f.pods[name], nil
}

func (f *fakeAPI) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[name]
	switch {
	case p == nil:
		return f.done("delete", name, apierrors.NewNotFound(v1.Resource("pods"), name))
	case *o.GracePeriodSeconds != 0:
		return f.done("delete", name, errors.New("gracefully"))
	case *o.Preconditions.UID != p.UID:
		return f.done("delete", name, apierrors.NewConflict(v1.Resource("pods"), name, errors.New("UID")))
	}
	delete(f.pods, name)
	return f.done("delete", name, nil)
}

type world struct {
	*Keeper
	t        *testing.T
	api      *fakeAPI
	recorder *record.FakeRecorder
	mu       sync.Mutex
	nodeErr  error
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, api: &fakeAPI{pods: map[string]*v1.Pod{}}, recorder: record.NewFakeRecorder(20)}
	w.Keeper = New(Config{
		Log: slog.New(slog.DiscardHandler), Pods: w.api, Node: "n1", Recorder: w.recorder,
		NodeUID: func(context.Context) (types.UID, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return "node-uid", w.nodeErr
		},
	})
	runtest.Start(t, w.Run)
	return w
}

func (w *world) node(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodeErr = err
}

func (w *world) fail(err error) {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	w.api.fail = err
}

func (w *world) wantCalls(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	if diff := cmp.Diff(want, w.api.log); diff != "" {
		w.t.Errorf("calls (-want +got):\n%s", diff)
	}
	w.api.log = nil
}

func TestKeepsMirrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		web := []*v1.Pod{static("web", "h1")}
		w.Set(web, nil, nil, false)
		w.wantCalls("create web <nil>")
		w.Set(web, nil, nil, false) // the watch is behind
		w.wantCalls()
		w.Set(web, nil, []*v1.Pod{mirrorOf("web", "h1", "m1")}, true)
		w.wantCalls()

		// Somebody deletes it.
		w.Set(web, nil, []*v1.Pod{going(mirrorOf("web", "h1", "m1"))}, true)
		w.wantCalls("delete web <nil>")
		w.Set(web, nil, nil, true)
		w.wantCalls("create web <nil>")

		// The pod is edited: the new mirror comes when the old pod has ended.
		m2 := []*v1.Pod{mirrorOf("web", "h1", "m2")}
		edited := []*v1.Pod{static("web", "h2")}
		w.Set(edited, web, m2, true)
		w.wantCalls()
		w.Set(edited, nil, m2, true)
		w.wantCalls("delete web <nil>")
		w.Set(edited, nil, nil, true)
		w.wantCalls("create web <nil>")
		if got := w.api.pods["web"].Annotations["kubernetes.io/config.mirror"]; got != "h2" {
			t.Errorf("the mirror is of version %s", got)
		}

		// The pod goes.
		m3 := []*v1.Pod{mirrorOf("web", "h2", "m3")}
		w.Set(nil, edited, m3, true)
		w.wantCalls()
		w.Set(nil, nil, m3, true)
		w.wantCalls("delete web <nil>")
	})
}

func TestUnseenForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Set([]*v1.Pod{static("web", "h1")}, nil, nil, true)
		w.wantCalls("create web <nil>")
		w.api.mu.Lock()
		delete(w.api.pods, "web") // before the watch has shown it
		w.api.mu.Unlock()
		time.Sleep(29 * time.Second)
		w.wantCalls()
		time.Sleep(2 * time.Second)
		w.wantCalls("create web <nil>")
	})
}

func TestNodeNotRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(errors.New("not registered"))
		w.Set([]*v1.Pod{static("web", "h1")}, nil, nil, true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(w.recorder.Events) != 0 {
			t.Errorf("event %q while the node is only late", <-w.recorder.Events)
		}
		if got := w.Faults(); len(got) != 0 {
			t.Errorf("faults %v while the node is only late", got)
		}
		time.Sleep(50 * time.Second)
		w.wantCalls()
		if got := w.Faults(); len(got) != 1 || got[0].Object != "Pod default/web" || !strings.Contains(got[0].Message, "not registered") {
			t.Errorf("faults = %v", got)
		}
		if len(w.recorder.Events) != 1 {
			t.Errorf("%d events; want one", len(w.recorder.Events))
		}
		w.node(nil)
		w.Poke()
		w.wantCalls("create web <nil>")
		if got := w.Faults(); len(got) != 0 {
			t.Errorf("faults = %v", got)
		}
	})
}

// TestClassIsLate: the class of a pod may come with it, and later.
func TestClassIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fail(apierrors.NewForbidden(v1.Resource("pods"), "web", errors.New(`RuntimeClass "gvisor" not found`)))
		pod := static("web", "h1")
		pod.Spec.RuntimeClassName = new("gvisor")
		w.Set([]*v1.Pod{pod}, nil, nil, true)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n, faults := len(w.recorder.Events), w.Faults(); n != 0 || len(faults) != 0 {
			t.Errorf("%d events and faults %v while the class is only late", n, faults)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n, faults := len(w.recorder.Events), w.Faults(); n != 1 || len(faults) != 1 || !strings.Contains(faults[0].Message, `"gvisor" not found`) {
			t.Errorf("%d events and faults %v, want one of each", n, faults)
		}
	})
}

func TestAPIFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fail(errors.New("no such namespace"))
		w.Set([]*v1.Pod{static("web", "h1")}, nil, nil, true)
		w.wantCalls("create web no such namespace")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		w.api.mu.Lock()
		calls := len(w.api.log)
		w.api.log = nil
		w.api.mu.Unlock()
		if calls < 20 || calls > 32 {
			t.Errorf("%d calls in ten minutes", calls)
		}
		if got := <-w.recorder.Events; !strings.Contains(got, "FailedMirrorPod") || len(w.recorder.Events) != 0 {
			t.Errorf("events: %q and %d more", got, len(w.recorder.Events))
		}
		w.fail(nil)
		time.Sleep(30 * time.Second)
		w.wantCalls("create web <nil>")
	})
}

func TestNameIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.pods["web"] = mirrorOf("web", "h0", "m") // not seen yet
		other := static("db", "x")
		other.Annotations = nil
		w.api.pods["db"] = other
		w.Set([]*v1.Pod{static("web", "h1"), static("db", "h2")}, nil, nil, true)
		w.wantCalls(
			`create db pods "db" already exists`,
			`create web pods "web" already exists`, "delete web <nil>")
		time.Sleep(250 * time.Millisecond)
		w.wantCalls(`create db pods "db" already exists`, "create web <nil>")
		if got := w.Faults(); len(got) != 1 || got[0].Object != "Pod default/db" || !strings.Contains(got[0].Message, "no mirror") {
			t.Errorf("faults = %v", got)
		}
	})
}
