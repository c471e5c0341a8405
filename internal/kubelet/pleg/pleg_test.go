package pleg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// TestTransitions goes through what a container may do between two lists.
func TestTransitions(t *testing.T) {
	const none = observed.State("")
	for _, test := range []struct {
		from, to observed.State
		want     []string
	}{
		{none, observed.Created, []string{"a changed"}},
		{none, observed.Running, []string{"a changed"}},
		{none, observed.Exited, []string{"a changed"}},
		{observed.Created, observed.Running, []string{"a changed"}},
		{observed.Running, observed.Running, nil},
		{observed.Running, observed.Exited, []string{"a changed"}},
		{observed.Running, observed.Unknown, []string{"a changed"}},
		{observed.Unknown, observed.Running, []string{"a changed"}},
		{observed.Exited, observed.Exited, nil},
		{observed.Running, none, []string{"a gone"}},
		{observed.Exited, none, []string{"a gone"}},
	} {
		t.Run(fmt.Sprintf("%s to %s", test.from, test.to), func(t *testing.T) {
			runtime := newScripted()
			runtime.noEvents = true
			if test.from != none {
				runtime.set("a", "c", test.from)
			}
			run(t, runtime, func(t *testing.T, r rig) {
				r.received()
				if test.to == none {
					runtime.drop("a")
				} else {
					runtime.set("a", "c", test.to)
				}
				time.Sleep(time.Second)
				r.wantEvents(t, test.want...)
				got, err := r.cache.Get("a")
				if err != nil {
					t.Fatal(err)
				}
				var state observed.State
				if len(got.Containers) == 1 {
					state = got.Containers[0].State
				}
				if state != test.to {
					t.Errorf("cached state = %q, want %q", state, test.to)
				}
				if n := len(r.Pods()); n != min(1, len(test.to)) {
					t.Errorf("knows %d pods", n)
				}
			})
		})
	}
}

// TestSandboxes holds that sandboxes count as containers do.
func TestSandboxes(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents = true
	run(t, runtime, func(t *testing.T, r rig) {
		for _, step := range []struct {
			name   string
			change func()
			want   []string
		}{
			{"a sandbox alone", func() { runtime.setSandbox("a", "s0", observed.Running) }, []string{"a changed"}},
			{"nothing", func() {}, nil},
			{"it ends", func() { runtime.setSandbox("a", "s0", observed.Exited) }, []string{"a changed"}},
			{"another one", func() { runtime.setSandbox("a", "s1", observed.Running) }, []string{"a changed"}},
			{"the first goes", func() { runtime.do(func() { delete(runtime.sandboxes["a"], "s0") }) }, []string{"a changed"}},
			{"all go", func() { runtime.drop("a") }, []string{"a gone"}},
		} {
			step.change()
			time.Sleep(time.Second)
			if diff := cmp.Diff(step.want, r.received()); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", step.name, diff)
			}
		}
	})
}

// TestPeriod holds that a period counts from the end of a list, however long
// that took, so that a slow runtime is not asked all the time.
func TestPeriod(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents, runtime.listTakes = true, 4*time.Second
	run(t, runtime, func(t *testing.T, _ rig) {
		time.Sleep(100*time.Second - time.Millisecond)
		if n := runtime.listCount(); n != 20 {
			t.Errorf("%d lists of 4 s in 100 s, want 20", n)
		}
	})
}

func TestInspectsOnlyWhatChanged(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents = true
	for i := range 100 {
		runtime.set(types.UID(fmt.Sprint(i)), fmt.Sprint("c", i), observed.Running)
	}
	run(t, runtime, func(t *testing.T, r rig) {
		if n := len(r.received()); n != 100 {
			t.Fatalf("%d events, want 100", n)
		}
		runtime.takeInspected()
		runtime.set("7", "c7", observed.Exited)
		time.Sleep(5 * time.Second)
		r.wantEvents(t, "7 changed")
		if diff := cmp.Diff([]types.UID{"7"}, runtime.takeInspected()); diff != "" {
			t.Errorf("inspected (-want +got):\n%s", diff)
		}
	})
}

// TestNothingLost changes far more pods at once than upstream has room for,
// twice, while nobody receives. Each pod's last change comes.
func TestNothingLost(t *testing.T) {
	const pods = 2000
	runtime := newScripted()
	runtime.noEvents = true
	run(t, runtime, func(t *testing.T, r rig) {
		for i := range pods {
			runtime.set(types.UID(fmt.Sprint(i)), fmt.Sprint("c", i), observed.Running)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range pods {
			runtime.set(types.UID(fmt.Sprint(i)), fmt.Sprint("c", i), observed.Exited)
		}
		time.Sleep(time.Second)
		if n := len(r.received()); n != pods {
			t.Errorf("%d events, want %d", n, pods)
		}
		for i := range pods {
			if got, err := r.cache.Get(types.UID(fmt.Sprint(i))); err != nil || got.Containers[0].State != observed.Exited {
				t.Fatalf("pod %d: %v, %v", i, got.Containers, err)
			}
		}
	})
}

// TestCacheFirst holds that whoever receives an event finds it in the cache.
func TestCacheFirst(t *testing.T) {
	runtime := newScripted()
	run(t, runtime, func(t *testing.T, r rig) {
		for i := range 50 {
			state := []observed.State{observed.Running, observed.Exited}[i%2]
			runtime.set("a", "c", state)
			runtime.tell("a", "c")
			<-r.Events()
			if got, err := r.cache.Get("a"); err != nil || got.Containers[0].State != state {
				t.Fatalf("after the event: %v, %v, want %s", got.Containers, err, state)
			}
		}
	})
}

func TestParallel(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents, runtime.takes = true, 2*time.Millisecond
	for i := range 110 {
		runtime.set(types.UID(fmt.Sprint(i)), fmt.Sprint("c", i), observed.Running)
	}
	run(t, runtime, func(t *testing.T, r rig) {
		began := time.Now()
		for range 110 {
			<-r.Events()
		}
		if took := time.Since(began); took > 40*time.Millisecond {
			t.Errorf("took %v", took)
		}
		runtime.do(func() {
			if runtime.most != 16 {
				t.Errorf("%d inspections at a time, want 16", runtime.most)
			}
		})
	})
}

// TestHungPods has more pods that hang than places: once each is known to
// hang, the others are inspected at once.
func TestHungPods(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents = true
	for i := range 40 {
		uid := types.UID(fmt.Sprint("hung", i))
		runtime.set(uid, fmt.Sprint("c", i), observed.Running)
		runtime.hung[uid] = true
	}
	run(t, runtime, func(t *testing.T, r rig) {
		time.Sleep(2 * time.Minute) // three rounds of 30 seconds
		synctest.Wait()
		for i := range 20 {
			uid := types.UID(fmt.Sprint("fine", i))
			runtime.set(uid, fmt.Sprint("f", i), observed.Running)
			began := time.Now()
			if e := <-r.Events(); e.UID != uid {
				t.Fatalf("event of %s, want %s", e.UID, uid)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("%s took %v, want a list's period", uid, took)
			}
		}
		if _, err := r.cache.Get("hung0"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error of a pod that hangs = %v", err)
		}
		runtime.do(func() { clear(runtime.hung) })
		time.Sleep(2 * time.Minute)
		if n := len(r.received()); n != 40 {
			t.Errorf("%d of 40 came back", n)
		}
	})
}

// TestOneHungPod holds that a pod that hangs keeps nobody from being served
// and the node from being unhealthy, and that it is named.
func TestOneHungPod(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents = true
	for _, uid := range []types.UID{"a", "b", "hung"} {
		runtime.set(uid, "c-"+string(uid), observed.Running)
	}
	runtime.hung["hung"] = true
	run(t, runtime, func(t *testing.T, r rig) {
		r.wantEvents(t, "a changed", "b changed")
		began := time.Now()
		time.Sleep(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := r.cache.GetNewerThan(ctx, "a", began); err != nil {
			t.Errorf("a waits for the pod that hangs: %v", err)
		}
		if _, err := r.cache.GetNewerThan(ctx, "hung", began); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the pod that hangs is served: %v", err)
		}
		time.Sleep(10 * time.Minute)
		if err := r.Healthy(); err != nil {
			t.Errorf("unhealthy: %v", err)
		}
		calls := r.Hanging(time.Minute)
		if len(calls) == 1 && !strings.HasPrefix(calls[0].String(), "inspect pod ns/name-hung (hung): no good answer since ") {
			t.Errorf("hanging = %v, want the pod's name", calls[0])
		}
		if len(calls) != 1 || calls[0].Pod != "hung" || time.Since(calls[0].Since) < 10*time.Minute {
			t.Errorf("hanging = %v, want the inspection since the beginning", calls)
		}
	})
}

func TestInspectionFailsOnce(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents = true
	runtime.set("a", "c", observed.Running)
	run(t, runtime, func(t *testing.T, r rig) {
		r.wantEvents(t, "a changed")
		broken := errors.New("broken")
		runtime.do(func() { runtime.broken["a"] = broken })
		runtime.set("a", "c", observed.Exited)
		time.Sleep(time.Second)
		r.wantEvents(t) // an error is no event
		got, err := r.cache.Get("a")
		if !errors.Is(err, broken) || got.Containers[0].State != observed.Running {
			t.Errorf("cached %v, %v, want the last status and the error", got.Containers, err)
		}
		if diff := cmp.Diff([]float64{1}, []float64{float64(r.failing())}); diff != "" {
			t.Errorf("failing: %s", diff)
		}
		runtime.do(func() { clear(runtime.broken) })
		time.Sleep(maxRetry)
		r.wantEvents(t, "a changed")
		if got, err := r.cache.Get("a"); err != nil || got.Containers[0].State != observed.Exited {
			t.Errorf("cached %v, %v", got.Containers, err)
		}
	})
}

func TestPoke(t *testing.T) {
	runtime := newScripted()
	run(t, runtime, func(t *testing.T, r rig) {
		time.Sleep(5*time.Second + time.Millisecond) // the stream counts as open; the next list is far
		synctest.Wait()
		began := time.Now()
		time.Sleep(time.Millisecond)
		runtime.set("a", "c", observed.Running)
		r.Poke("a")
		got, err := r.cache.GetNewerThan(t.Context(), "a", began)
		if err != nil || len(got.Containers) != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
		r.wantEvents(t, "a changed")

		began = time.Now()
		time.Sleep(time.Millisecond)
		r.Poke("a")
		if _, err := r.cache.GetNewerThan(t.Context(), "a", began); err != nil {
			t.Fatal(err)
		}
		r.wantEvents(t) // nothing changed

		runtime.drop("a")
		began = time.Now()
		time.Sleep(time.Millisecond)
		r.Poke("a")
		if got, err := r.cache.GetNewerThan(t.Context(), "a", began); err != nil || len(got.Containers) != 0 {
			t.Fatalf("got %v, %v, want nothing", got, err)
		}
		r.wantEvents(t, "a gone")

		began = time.Now()
		time.Sleep(time.Millisecond)
		r.Poke("never there")
		if _, err := r.cache.GetNewerThan(t.Context(), "never there", began); err != nil {
			t.Fatal(err)
		}
		r.wantEvents(t)
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// TestPokeWhileBusy holds that a poke is never answered by an inspection that
// began before it.
func TestPokeWhileBusy(t *testing.T) {
	runtime := newScripted()
	runtime.takes = 100 * time.Millisecond
	run(t, runtime, func(t *testing.T, r rig) {
		runtime.set("a", "c", observed.Running)
		r.Poke("a")
		time.Sleep(50 * time.Millisecond)
		runtime.set("a", "c", observed.Exited) // the inspection under way saw it run
		asked := time.Now()
		time.Sleep(time.Millisecond)
		r.Poke("a")
		got, err := r.cache.GetNewerThan(t.Context(), "a", asked)
		if err != nil || got.Containers[0].State != observed.Exited {
			t.Errorf("got %v, %v", got.Containers, err)
		}
	})
}

func TestKeepsIPs(t *testing.T) {
	cache := observed.NewCache()
	l := loop{Generator: New(Config{Runtime: newScripted(), Cache: cache})}
	ready := &runtimeapi.PodSandboxStatus{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	ended := &runtimeapi.PodSandboxStatus{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}
	cache.Set("a", &observed.Status{UID: "a", IPs: []string{"10.0.0.1"}}, nil, time.Now())
	for _, test := range []struct {
		name    string
		status  observed.Status
		wantIPs []string
	}{
		{"its own", observed.Status{UID: "a", IPs: []string{"10.0.0.2"}}, []string{"10.0.0.2"}},
		{"sandbox ended", observed.Status{UID: "a", Sandboxes: []*runtimeapi.PodSandboxStatus{ended}}, []string{"10.0.0.1"}},
		{"no sandbox", observed.Status{UID: "a"}, []string{"10.0.0.1"}},
		{"ready without an address", observed.Status{UID: "a", Sandboxes: []*runtimeapi.PodSandboxStatus{ready}}, nil},
		{"another pod", observed.Status{UID: "b"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := l.keepIPs(&test.status)
			if diff := cmp.Diff(test.wantIPs, got.IPs); diff != "" {
				t.Errorf("IPs (-want +got):\n%s", diff)
			}
		})
	}
}
