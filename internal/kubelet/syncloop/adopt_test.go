package syncloop

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// TestAdoptsWhatRuns holds that an agent that starts asks nobody whether pods
// that run may run, be they of the API or of a file, and even if the rest of
// their life is only a sandbox.
func TestAdoptsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sandboxOnly := observed.Pod{
			UID: "c", Namespace: "default", Name: "crashing",
			Sandboxes: []observed.Sandbox{{State: observed.Running}}, Containers: []observed.Container{{Name: "c", State: observed.Exited}},
		}
		w := newWorld(t, has("s", "web", observed.Running), has("a", "db", observed.Running), sandboxOnly)
		w.refused = map[string]string{"web": "no", "db": "no", "crashing": "no", "new": "no"}
		w.Deliver(t.Context(), "api", []*v1.Pod{pod("a", "db"), pod("c", "crashing"), pod("n", "new"), mirror("m", "web", "s")})
		w.Deliver(t.Context(), "file", []*v1.Pod{static("s", "web")})
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.asked) != 1 || w.asked[0] != "n" {
			t.Errorf("asked about %v, want only about what is new", w.asked)
		}
		for _, uid := range []string{"s", "a", "c"} {
			if info := w.infos[pod(uid, "").UID]; info.Pod == nil {
				t.Errorf("%s has no worker", uid)
			}
		}
	})
}

// sized makes a pod of the API whose container asks for so much memory.
func sized(version, memory string, change func(*v1.Pod)) *v1.Pod {
	p := pod("a", "db")
	p.ResourceVersion = version
	p.Spec.Containers = []v1.Container{{Name: "c", Resources: memoryOf(memory)}}
	if change != nil {
		change(p)
	}
	return p
}

func memoryOf(memory string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}}
}

func (w *world) wantMemory(want string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	given := w.infos["a"].Pod
	w.mu.Unlock()
	seen, _ := w.PodByUID("a")
	for who, p := range map[string]*v1.Pod{"the worker": given, "others": seen} {
		if got := p.Spec.Containers[0].Resources.Limits.Memory().String(); got != want {
			w.t.Errorf("%s: got %s, want %s", who, got, want)
		}
	}
}

func (w *world) wantEvents(want ...string) {
	w.t.Helper()
	synctest.Wait()
	for _, e := range want {
		select {
		case got := <-w.recorder.Events:
			if got != e {
				w.t.Errorf("event %q, want %q", got, e)
			}
		default:
			w.t.Errorf("no event %q", e)
		}
	}
	if n := len(w.recorder.Events); n > 0 {
		w.t.Errorf("%d more events, such as %q", n, <-w.recorder.Events)
	}
}

// TestResize holds that a pod goes on with the resources that it was started
// with, and that this is told once for each change.
func TestResize(t *testing.T) {
	const refused = "Warning ResizeInfeasible " + allocation.Infeasible
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx := t.Context()
		w.Deliver(ctx, "api", []*v1.Pod{sized("1", "64Mi", nil)})
		w.wantMemory("64Mi")
		w.Deliver(ctx, "api", []*v1.Pod{sized("2", "1Gi", func(p *v1.Pod) { p.Generation = 2 })})
		w.wantMemory("64Mi")
		w.wantEvents(refused)
		if got := w.Faults(); len(got) != 1 || got[0].Object != "Pod default/db" || got[0].Message != allocation.Infeasible {
			t.Errorf("faults: %v", got)
		}
		w.Deliver(ctx, "api", []*v1.Pod{sized("3", "1Gi", func(p *v1.Pod) { p.Generation, p.Status.Phase = 2, v1.PodRunning })})
		w.wantMemory("64Mi")
		w.wantEvents()
		w.Deliver(ctx, "api", []*v1.Pod{sized("4", "2Gi", func(p *v1.Pod) { p.Generation = 3 })})
		w.wantEvents(refused)
		w.Deliver(ctx, "api", []*v1.Pod{sized("5", "64Mi", func(p *v1.Pod) { p.Generation = 4 })}) // taken back
		w.wantMemory("64Mi")
		if got := w.Faults(); len(got) != 0 {
			t.Errorf("faults: %v", got)
		}
		w.Deliver(ctx, "api", []*v1.Pod{sized("6", "2Gi", func(p *v1.Pod) { p.Generation = 5 })})
		w.wantEvents(refused)
	})
}

// TestResizeBeforeARestart holds that a new agent goes on with what an earlier
// one started the pod with, and that a pod that does not run is started with
// what is wanted.
func TestResizeBeforeARestart(t *testing.T) {
	resized := func() *v1.Pod {
		return sized("2", "1Gi", func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Resources: new(memoryOf("64Mi"))}}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, has("a", "db", observed.Running))
		w.Deliver(t.Context(), "api", []*v1.Pod{resized()})
		w.wantMemory("64Mi")
		if len(w.recorder.Events) != 1 {
			t.Errorf("%d events, want one", len(w.recorder.Events))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, has("a", "db", observed.Exited))
		w.Deliver(t.Context(), "api", []*v1.Pod{resized()})
		w.wantMemory("1Gi")
		w.wantEvents()
	})
}
