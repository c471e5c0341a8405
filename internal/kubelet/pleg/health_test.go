package pleg

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
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

// TestThreshold holds that the age at which a list counts as lost can be set,
// and that lists come often enough for it.
func TestThreshold(t *testing.T) {
	runtime := newScripted()
	runtime.set("a", "c", observed.Running)
	runWith(t, Config{Threshold: 30 * time.Second}, runtime, func(t *testing.T, r rig) {
		r.received()
		for range 600 {
			time.Sleep(time.Second)
			if err := r.Healthy(); err != nil {
				t.Fatalf("a runtime that answers is unhealthy: %v", err)
			}
		}
		runtime.do(func() { runtime.listHangs = true })
		time.Sleep(time.Minute)
		if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "threshold is 30s") {
			t.Errorf("health = %v", err)
		}
	})
}

// TestMetrics holds the names: dashboards and alerts go by them.
func TestMetrics(t *testing.T) {
	runtime := newScripted()
	runtime.noEvents = true
	runtime.set("a", "c1", observed.Running)
	runtime.set("a", "c2", observed.Exited)
	runtime.setSandbox("a", "s1", observed.Running)
	reg := prometheus.NewPedanticRegistry()
	runWith(t, Config{Registerer: reg}, runtime, func(t *testing.T, r rig) {
		r.received()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, family := range families {
			names = append(names, family.GetName())
		}
		if diff := cmp.Diff([]string{
			"holdfast_pleg_failing_pods",
			"holdfast_pleg_missed_events_total",
			"holdfast_pleg_relist_age_seconds",
			"kubelet_evented_pleg_connection_error_count",
			"kubelet_evented_pleg_connection_latency_seconds",
			"kubelet_evented_pleg_connection_success_count",
			"kubelet_pleg_discard_events",
			"kubelet_pleg_last_seen_seconds",
			"kubelet_pleg_pod_relist_duration_seconds",
			"kubelet_pleg_relist_duration_seconds",
			"kubelet_pleg_relist_interval_seconds",
			"kubelet_running_containers",
			"kubelet_running_pods",
		}, names); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP kubelet_running_containers Containers by state.
# TYPE kubelet_running_containers gauge
kubelet_running_containers{container_state="created"} 0
kubelet_running_containers{container_state="exited"} 1
kubelet_running_containers{container_state="running"} 1
kubelet_running_containers{container_state="unknown"} 0
# HELP kubelet_running_pods Pods with a running sandbox.
# TYPE kubelet_running_pods gauge
kubelet_running_pods 1
`), "kubelet_running_containers", "kubelet_running_pods"); err != nil {
			t.Error(err)
		}

		listed := listAge(t, reg)
		runtime.do(func() { runtime.listHangs = true })
		time.Sleep(10 * time.Minute)
		if grown := listAge(t, reg); grown < listed+9*60 {
			t.Errorf("age of the last list: %v s, and ten minutes of hanging later %v s", listed, grown)
		}
	})
}

// listAge returns the age of the last list, as the metrics have it.
func listAge(t *testing.T, from prometheus.Gatherer) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "holdfast_pleg_relist_age_seconds" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("no age")
	return 0
}
