package syncloop

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
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

// pending is what was told of a pod's resize.
func (w *world) pending() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resize == nil {
		return ""
	}
	return w.resize.Reason + ": " + w.resize.Message
}

// wantSteps checks what the worker got, and when it was told what waits.
func (w *world) wantSteps(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(w.steps, want); diff != "" {
		w.t.Errorf("steps: got -, want +:\n%s", diff)
	}
	w.steps = nil
}

func wantsMemory(version, memory string, generation int64) *v1.Pod {
	return sized(version, memory, func(p *v1.Pod) { p.Generation = generation })
}

// TestResize holds that a resize is granted if there is room, and that it is
// told once for each change, and as long as it lasts, if there is not.
func TestResize(t *testing.T) {
	resources := func(memory string, generation int) string {
		return fmt.Sprintf(`{"containers":[{"name":"c","resources":{"limits":{"memory":%q}}}],"generation":%d`, memory, generation)
	}
	started := func(memory string, generation int) string {
		return "Normal ResizeStarted Pod resize started: " + resources(memory, generation) + "}"
	}
	deferred := func(memory string, generation int, why string) string {
		return fmt.Sprintf(`Warning ResizeDeferred Pod resize Deferred: %s,"error":%q}`, resources(memory, generation), why)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx := t.Context()
		give := func(p *v1.Pod, others ...*v1.Pod) { w.Deliver(ctx, "api", append(others, p)) }
		w.Deliver(ctx, "file", nil)
		give(wantsMemory("1", "64Mi", 1))
		w.wantMemory("64Mi")
		give(wantsMemory("2", "1Gi", 2))
		w.wantMemory("1Gi")
		w.wantEvents(started("1Gi", 2))

		w.mu.Lock()
		w.refused = map[string]string{"db": "alone"}
		w.mu.Unlock()
		other := pod("o", "other")
		give(wantsMemory("3", "2Gi", 3), other)
		w.wantMemory("1Gi")
		w.wantEvents(deferred("2Gi", 3, "beside other"))
		if got, want := w.pending(), "Deferred: beside other"; got != want {
			t.Errorf("pending: got %q, want %q", got, want)
		}
		if got := w.Faults(); len(got) != 1 || got[0].Object != "Pod default/db" || got[0].Message != "its resize waits: beside other" {
			t.Errorf("faults: %v", got)
		}
		give(sized("4", "2Gi", func(p *v1.Pod) { p.Generation, p.Status.Phase = 3, v1.PodRunning }), other)
		w.wantMemory("1Gi")
		w.wantEvents()
		give(wantsMemory("5", "3Gi", 4), other)
		w.wantEvents(deferred("3Gi", 4, "beside other"))
		give(wantsMemory("6", "1Gi", 5), other) // taken back
		w.wantMemory("1Gi")
		if got := w.Faults(); len(got) != 0 || w.pending() != "" {
			t.Errorf("faults: %v, pending %q", got, w.pending())
		}
		give(wantsMemory("7", "2Gi", 6), other)
		w.wantEvents(deferred("2Gi", 6, "beside other"))
		give(wantsMemory("7", "2Gi", 6)) // the other one goes
		w.mu.Lock()
		w.infos = map[types.UID]lifecycle.Info{"a": w.infos["a"]}
		w.mu.Unlock()
		time.Sleep(3 * time.Second) // housekeeping
		w.wantMemory("2Gi")
		w.wantEvents(started("2Gi", 6))
		if got := w.pending(); got != "" {
			t.Errorf("pending: %q", got)
		}
	})
}

// TestUnsettledResize holds that no worker gets a generation with the resources
// of an earlier one before it is told that it waits: it would look as if the
// resize were done.
func TestUnsettledResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		give := func(p *v1.Pod, others ...*v1.Pod) { w.Deliver(t.Context(), "api", append(others, p)) }
		w.Deliver(t.Context(), "file", nil)
		give(wantsMemory("1", "64Mi", 1))
		w.wantSteps("1 with 64Mi")
		give(wantsMemory("2", "1Gi", 2))
		w.wantSteps("1 with 64Mi", "2 with 1Gi")
		w.mu.Lock()
		w.refused = map[string]string{"db": "alone"}
		w.mu.Unlock()
		give(wantsMemory("3", "2Gi", 3), pod("o", "other"))
		w.wantSteps("2 with 1Gi", "3 waits", "3 with 1Gi")
		give(sized("4", "2Gi", func(p *v1.Pod) { p.Generation, p.Labels = 3, map[string]string{"new": "label"} }), pod("o", "other"))
		w.wantSteps("3 with 1Gi")
		give(wantsMemory("5", "1Gi", 4), pod("o", "other"))
		w.wantSteps("4 with 1Gi")
	})
}

// TestResizeWaitsForAllSources holds that room is given away only when all that
// may need it are known.
func TestResizeWaitsForAllSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Deliver(t.Context(), "api", []*v1.Pod{wantsMemory("1", "64Mi", 1)})
		w.Deliver(t.Context(), "api", []*v1.Pod{wantsMemory("2", "1Gi", 2)})
		w.wantMemory("64Mi")
		w.wantEvents()
		w.Deliver(t.Context(), "file", nil)
		w.wantMemory("1Gi")
	})
}

// TestResizeOrder holds that those come first that take nothing, then the more
// important.
func TestResizeOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		version := 0
		all := func(sizes map[string]string) []*v1.Pod {
			var pods []*v1.Pod
			for name, memory := range sizes {
				version++
				p := pod(name, name)
				p.ResourceVersion = fmt.Sprint(version)
				p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: memoryOf(memory).Limits}}}
				if name == "important" {
					p.Spec.Priority = new(int32(1000))
				}
				pods = append(pods, p)
			}
			return pods
		}
		w.Deliver(t.Context(), "api", all(map[string]string{"plain": "1Gi", "important": "1Gi", "shrinks": "1Gi"}))
		w.Deliver(t.Context(), "api", all(map[string]string{"plain": "2Gi", "important": "2Gi", "shrinks": "512Mi"}))
		synctest.Wait()
		w.mu.Lock()
		w.asked = nil
		w.mu.Unlock()
		w.Deliver(t.Context(), "file", nil)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if diff := cmp.Diff(w.asked, []types.UID{"shrinks", "important", "plain"}); diff != "" {
			t.Errorf("order: got -, want +:\n%s", diff)
		}
	})
}

// TestResizeBeforeARestart holds that a new agent goes on with what an earlier
// one gave the pod until the resize is granted, and that a pod that does not
// run is started with what is wanted.
func TestResizeBeforeARestart(t *testing.T) {
	resized := func() *v1.Pod {
		return sized("2", "1Gi", func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Resources: new(memoryOf("64Mi"))}}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, has("a", "db", observed.Running))
		w.refused = map[string]string{"db": "alone"}
		w.Deliver(t.Context(), "api", []*v1.Pod{resized(), pod("o", "other")})
		w.Deliver(t.Context(), "file", nil)
		w.wantMemory("64Mi")
		if got, want := w.pending(), "Deferred: beside other"; got != want {
			t.Errorf("pending: got %q, want %q", got, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, has("a", "db", observed.Exited))
		w.Deliver(t.Context(), "api", []*v1.Pod{resized()})
		w.Deliver(t.Context(), "file", nil)
		w.wantMemory("1Gi")
		w.wantEvents()
	})
}
