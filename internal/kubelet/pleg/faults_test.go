package pleg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

// A wired is a generator that runs over the real adapter and the fake runtime,
// in real time. Its tests wait for what must come, and fail by the test's
// deadline if it does not.
type wired struct {
	*Generator
	t       *testing.T
	fake    *crifake.Fake
	runtime *cri.Runtime
	cache   *observed.Cache
}

func wire(t *testing.T, cfg Config) wired {
	t.Helper()
	fake := crifake.Start(t)
	fake.AddImage("demo")
	runtime, cache := cri.New(fake.Conn(), cri.Config{}), observed.NewCache()
	cfg.Runtime, cfg.Cache = runtime, cache
	g := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return wired{g, t, fake, runtime, cache}
}

// pod runs a pod with one container and returns the container's ID.
func (w wired) pod(uid string) string {
	w.t.Helper()
	labels := map[string]string{runtimelabels.PodUID: uid, runtimelabels.PodName: uid, runtimelabels.PodNamespace: "ns"}
	box := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "ns", Uid: uid},
		Labels:   labels,
	}
	if _, err := w.runtime.RunSandbox(w.t.Context(), box, ""); err != nil {
		w.t.Fatal(err)
	}
	return w.container(uid, 0)
}

// container runs a container in a pod's sandbox and returns its ID.
func (w wired) container(uid string, attempt uint32) string {
	w.t.Helper()
	status, err := w.runtime.Inspect(w.t.Context(), types.UID(uid))
	if err != nil || len(status.Sandboxes) != 1 {
		w.t.Fatalf("sandboxes of %s: %v, %v", uid, status, err)
	}
	box := status.Sandboxes[0]
	id, err := w.runtime.CreateContainer(w.t.Context(), box.GetId(), &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: attempt},
		Image:    &runtimeapi.ImageSpec{Image: "demo"},
		Labels:   box.GetLabels(),
	}, &runtimeapi.PodSandboxConfig{Metadata: box.GetMetadata(), Labels: box.GetLabels()})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.runtime.StartContainer(w.t.Context(), id); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// await receives events until the cache says of every pod that its container
// is in that state. A reader that goes by events alone must get there.
func (w wired) await(pods int, state observed.State) {
	w.t.Helper()
	missing := map[types.UID]bool{}
	for i := range pods {
		missing[types.UID(fmt.Sprint(i))] = true
	}
	look := func(uid types.UID) {
		got, err := w.cache.Get(uid)
		if c := got.Container("main"); err == nil && c != nil && c.State == state {
			delete(missing, uid)
		}
	}
	for uid := range missing {
		look(uid)
	}
	for len(missing) > 0 {
		select {
		case e := <-w.Events():
			look(e.UID)
		case <-w.t.Context().Done():
			w.t.Fatalf("%d pods missing", len(missing))
		case <-time.After(time.Minute):
			w.t.Fatalf("%d pods missing", len(missing))
		}
	}
}

// TestWired ends all containers at once, over the wire.
func TestWired(t *testing.T) {
	const pods = 200
	w := wire(t, Config{Period: 50 * time.Millisecond, SlowPeriod: 200 * time.Millisecond})
	var ids []string
	for i := range pods {
		ids = append(ids, w.pod(fmt.Sprint(i)))
	}
	w.await(pods, observed.Running)
	for _, id := range ids {
		if err := w.fake.Exit(id, 1); err != nil {
			t.Fatal(err)
		}
	}
	w.await(pods, observed.Exited)
}

// TestAllExitAtOnce ends a thousand containers at once, with a stream, without
// one, and with one that forgets to tell.
func TestAllExitAtOnce(t *testing.T) {
	const pods = 1000
	for _, test := range []struct {
		name         string
		stream, told bool
	}{{"stream", true, true}, {"no stream", false, false}, {"silent stream", true, false}} {
		t.Run(test.name, func(t *testing.T) {
			runtime := newScripted()
			runtime.noEvents = !test.stream
			for i := range pods {
				runtime.set(types.UID(fmt.Sprint(i)), fmt.Sprint("c", i), observed.Running)
			}
			run(t, runtime, func(t *testing.T, r rig) {
				if n := len(r.received()); n != pods {
					t.Fatalf("%d events, want %d", n, pods)
				}
				time.Sleep(time.Minute)
				for i := range pods {
					runtime.set(types.UID(fmt.Sprint(i)), fmt.Sprint("c", i), observed.Exited)
				}
				if test.told {
					for i := range pods {
						runtime.tell(types.UID(fmt.Sprint(i)), fmt.Sprint("c", i))
					}
				} else {
					time.Sleep(90 * time.Second)
				}
				if n := len(r.received()); n != pods {
					t.Errorf("%d events, want %d", n, pods)
				}
				for i := range pods {
					if got, err := r.cache.Get(types.UID(fmt.Sprint(i))); err != nil || got.Containers[0].State != observed.Exited {
						t.Fatalf("pod %d: %v, %v", i, got.Containers, err)
					}
				}
			})
		})
	}
}

// TestFaults has the runtime killed, hung, slow and wrong, one after another.
// In the end the cache tells the truth, and no call of ours changed anything.
func TestFaults(t *testing.T) {
	const pods = 20
	w := wire(t, Config{Period: 20 * time.Millisecond, SlowPeriod: 100 * time.Millisecond, InspectTimeout: 200 * time.Millisecond})
	var ids []string
	for i := range pods {
		ids = append(ids, w.pod(fmt.Sprint(i)))
	}
	w.await(pods, observed.Running)
	w.fake.ForgetCalls()

	w.fake.Restart()
	w.fake.Stop()
	if err := w.fake.Exit(ids[0], 1); err != nil { // while nobody can be asked
		t.Fatal(err)
	}
	w.fake.Restart()
	for e := range w.Events() {
		if got, _ := w.cache.Get("0"); e.UID == "0" && got.Container("main").State == observed.Exited {
			break
		}
	}

	// Two inspections hang; the others' pods are served meanwhile.
	takeBack := w.fake.Inject(crifake.Fault{Op: "ContainerStatus", Hang: true, Match: func(req any) bool {
		status, ok := req.(*runtimeapi.ContainerStatusRequest)
		return ok && (status.GetContainerId() == ids[1] || status.GetContainerId() == ids[2])
	}})
	for i := 1; i <= 5; i++ {
		if err := w.fake.Exit(ids[i], 1); err != nil {
			t.Fatal(err)
		}
	}
	for served := 0; served < 3; {
		if e := <-w.Events(); e.UID >= "3" && e.UID <= "5" {
			served++
		}
	}
	began := time.Now()
	w.Poke("1")
	if _, err := w.cache.GetNewerThan(t.Context(), "1", began); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("status of a pod that hangs: %v", err)
	}
	takeBack()

	w.fake.Delay("ListPodSandbox", 50*time.Millisecond)
	w.fake.Delay("ContainerStatus", 20*time.Millisecond)
	w.fake.Inject(crifake.Fault{Op: "ContainerStatus", Times: 5, Err: errors.New("broken")})
	w.fake.MuteEvents(true)
	for i := 6; i < pods; i++ {
		if err := w.fake.Exit(ids[i], 1); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		w.fake.Emit(&runtimeapi.ContainerEventResponse{ContainerId: "gone"})
	}
	w.await(pods, observed.Exited)
	if changes := w.fake.Calls("RunPodSandbox", "StopPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer"); len(changes) > 0 {
		t.Errorf("changed the runtime: %v", changes)
	}
	if err := w.Healthy(); err != nil {
		t.Errorf("unhealthy: %v", err)
	}
}

// TestSteppedClock sets the machine's clock back and ahead between the runs of
// a container: the newest run counts all the same, and what is waited for comes.
func TestSteppedClock(t *testing.T) {
	for _, step := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			w := wire(t, Config{Period: 20 * time.Millisecond, SlowPeriod: 100 * time.Millisecond})
			first := w.pod("0")
			w.await(1, observed.Running)
			for attempt := uint32(1); attempt <= 3; attempt++ {
				if err := w.fake.Exit(first, 1); err != nil {
					t.Fatal(err)
				}
				w.await(1, observed.Exited)
				w.fake.StepClock(step)
				first = w.container("0", attempt)
				w.await(1, observed.Running)
				began := time.Now()
				w.Poke("0")
				got, err := w.cache.GetNewerThan(t.Context(), "0", began)
				if err != nil {
					t.Fatal(err)
				}
				if c := got.Container("main"); c.ID != first || c.RestartCount != int32(attempt) { //nolint:gosec // small
					t.Fatalf("after the step the newest run is %d, want %d", c.RestartCount, attempt)
				}
			}
			if err := w.Healthy(); err != nil {
				t.Error(err)
			}
			// Our own moments do not go by the wall clock, which nobody can set here.
			got, _ := w.cache.Get("0")
			for what, moment := range map[string]time.Time{"the last list": w.health.lastList(), "the status": got.Time} {
				if !strings.Contains(moment.String(), " m=") {
					t.Errorf("the moment of %s, %v, has no reading of the monotonic clock", what, moment)
				}
			}
		})
	}
}

// TestWaiters has a waiter for each of a thousand pods, of which half give up
// at random, while their pods go. The others are served, and nobody is left.
func TestWaiters(t *testing.T) {
	const pods = 1000
	runtime := newScripted()
	for i := range pods {
		runtime.set(types.UID(fmt.Sprint(i)), fmt.Sprint("c", i), observed.Running)
	}
	run(t, runtime, func(t *testing.T, r rig) {
		r.received()
		var served, left atomic.Int64
		var waiters sync.WaitGroup
		for i := range pods {
			waiters.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%2 == 0 {
					time.AfterFunc(rand.N(time.Second), cancel)
				}
				for range 5 {
					if _, err := r.cache.GetNewerThan(ctx, types.UID(fmt.Sprint(i)), time.Now()); err != nil {
						left.Add(1)
						return
					}
				}
				served.Add(1)
			})
		}
		for i := range pods {
			time.Sleep(time.Millisecond)
			runtime.drop(types.UID(fmt.Sprint(i)))
			r.Poke(types.UID(fmt.Sprint(i)))
		}
		waiters.Wait()
		if served.Load() < pods/2 || served.Load()+left.Load() != pods {
			t.Errorf("%d served, %d left", served.Load(), left.Load())
		}
		if n := len(r.received()); n != pods {
			t.Errorf("%d events of pods that went, want %d", n, pods)
		}
	})
}
