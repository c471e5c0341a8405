package pleg

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

func TestHealth(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents, runtime.listHangs = true, true
	run(t, runtime, func(t *testing.T, r rig) {
		synctest.Wait()
		want := func(parts ...string) {
			t.Helper()
			err := r.Healthy()
			if len(parts) == 0 && err != nil {
				t.Errorf("unhealthy: %v", err)
			}
			for _, part := range parts {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("health = %v, want %q in it", err, part)
				}
			}
		}
		time.Sleep(time.Minute)
		want("pleg has yet to be successful", "list pods", "(1m0s)")
		runtime.do(func() { runtime.listHangs = false })
		time.Sleep(3 * time.Minute)
		want()
		runtime.do(func() { runtime.listHangs = true })
		hung := time.Now()
		time.Sleep(2 * time.Minute)
		want()
		time.Sleep(5 * time.Minute) // the first list that hangs was given up, and another hangs
		want("pleg was last seen active 7m", "threshold is 3m0s", "list pods: no good answer since")
		if calls := r.Hanging(0); len(calls) != 1 || calls[0].Since.Sub(hung) > 2*time.Second {
			t.Errorf("hanging = %v, want one since %v", calls, hung)
		}
		if age := r.age(); age < 7*time.Minute {
			t.Errorf("age = %v: it does not grow while the list hangs", age)
		}
		runtime.do(func() { runtime.listHangs = false })
		time.Sleep(4 * time.Minute)
		want()
	})
}

func TestMostPodsFail(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents = true
	for i := range 3 {
		uid := types.UID(fmt.Sprint(i))
		runtime.set(uid, fmt.Sprint("c", i), observed.Running)
		runtime.hung[uid] = i > 0
	}
	run(t, runtime, func(t *testing.T, r rig) {
		time.Sleep(2 * time.Minute)
		if err := r.Healthy(); err != nil {
			t.Errorf("unhealthy too soon: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "2 of 3 pods") {
			t.Errorf("health = %v", err)
		}
	})
}

// TestRuntimeGone holds that pods stay known while the runtime cannot be asked.
func TestRuntimeGone(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents = true
	runtime.set("a", "c", observed.Running)
	run(t, runtime, func(t *testing.T, r rig) {
		r.wantEvents(t, "a changed")
		runtime.do(func() { runtime.listErr = observed.ErrUnavailable })
		time.Sleep(time.Hour)
		r.wantEvents(t)
		if got, err := r.cache.Get("a"); err != nil || len(got.Containers) != 1 {
			t.Errorf("got %v, %v", got.Containers, err)
		}
		runtime.do(func() { runtime.listErr = nil })
		runtime.set("a", "c", observed.Exited)
		time.Sleep(time.Second)
		r.wantEvents(t, "a changed")
	})
}

func TestMetrics(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents = true
	runtime.set("a", "c1", observed.Running)
	runtime.set("a", "c2", observed.Exited)
	run(t, runtime, func(t *testing.T, r rig) {
		r.received()
		err := testutil.CollectAndCompare(running{&r.known}, strings.NewReader(`
# HELP kubelet_running_containers Containers by state.
# TYPE kubelet_running_containers gauge
kubelet_running_containers{container_state="created"} 0
kubelet_running_containers{container_state="exited"} 1
kubelet_running_containers{container_state="running"} 1
kubelet_running_containers{container_state="unknown"} 0
`), "kubelet_running_containers")
		if err != nil {
			t.Error(err)
		}
	})
}
