package prober

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// want compares the record with lines.
func (w *world) want(lines ...string) {
	w.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(strings.Join(lines, "\n"), w.events()); diff != "" {
		w.t.Errorf("what happened (-want +got):\n%s", diff)
	}
}

// wantAnswer compares what is known of a container; "-" is unknown.
func wantAnswer(t *testing.T, ask func(string) (bool, bool), id, want string) {
	t.Helper()
	healthy, known := ask(id)
	got := "-"
	if known {
		got = fmt.Sprint(healthy)
	}
	if got != want {
		t.Errorf("answer for %s = %s, want %s", id, got, want)
	}
}

// until lets fake time pass until so many seconds after the start.
func (w *world) until(seconds float64) {
	time.Sleep(time.Until(w.start.Add(time.Duration(seconds * float64(time.Second)))))
	synctest.Wait()
}

func TestLivenessFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answers(always(false, "cat: no such file", nil))
		w.runs("c1", time.Now())
		w.p.AddPod(pod(probe(liveness, 5, 5, 1, 3)))
		w.until(14)
		wantAnswer(t, w.p.Liveness, "c1", "-")
		w.until(100)
		failed := "event Unhealthy on spec.containers{app}: Liveness probe failed: cat: no such file"
		w.want("5 Liveness c1 at 10.1.0.2", "5 "+failed, "10 Liveness c1 at 10.1.0.2", "10 "+failed,
			"15 Liveness c1 at 10.1.0.2", "15 "+failed, "15 update u1")
		wantAnswer(t, w.p.Liveness, "c1", "false")

		t.Log("the container is started again")
		w.answers(always(true, "", nil))
		w.runs("c2", time.Now())
		w.p.AddPod(pod(probe(liveness, 5, 5, 1, 3)))
		synctest.Wait()
		wantAnswer(t, w.p.Liveness, "c1", "-")
		w.until(106)
		w.want("105 Liveness c2 at 10.1.0.2", "105 update u1")
		wantAnswer(t, w.p.Liveness, "c2", "true")
	})
}

// TestLongDelay holds that a probe with a delay and a period of 300 s is asked
// at 300 s and that its failures have their effect (podman#19366).
func TestLongDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answers(always(false, "x", nil))
		w.runs("c1", time.Now())
		w.p.AddPod(pod(probe(liveness, 300, 300, 1, 3)))
		w.until(299)
		w.want("")
		w.until(899)
		wantAnswer(t, w.p.Liveness, "c1", "-")
		w.until(901)
		wantAnswer(t, w.p.Liveness, "c1", "false")
		failed := " event Unhealthy on spec.containers{app}: Liveness probe failed: x"
		w.want("300 Liveness c1 at 10.1.0.2", "300"+failed, "600 Liveness c1 at 10.1.0.2", "600"+failed,
			"900 Liveness c1 at 10.1.0.2", "900"+failed, "900 update u1")
	})
}

func TestReadinessThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.runs("c1", time.Now())
		w.p.AddPod(pod(probe(readiness, 0, 10, 2, 2)))
		synctest.Wait()
		wantAnswer(t, w.p.Readiness, "c1", "-")
		w.until(11)
		wantAnswer(t, w.p.Readiness, "c1", "true")
		w.answers(always(false, "", nil))
		w.until(21)
		wantAnswer(t, w.p.Readiness, "c1", "true") // one failure of two
		w.answers(always(true, "", nil))
		w.until(31)
		w.answers(always(false, "", nil))
		w.until(41)
		wantAnswer(t, w.p.Readiness, "c1", "true") // not two in a row
		w.until(51)
		wantAnswer(t, w.p.Readiness, "c1", "false")
		w.answers(always(true, "", nil))
		w.until(61)
		wantAnswer(t, w.p.Readiness, "c1", "false")
		w.until(71)
		wantAnswer(t, w.p.Readiness, "c1", "true")
	})
}

func TestStartupHoldsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answers(func(use kind, _ string) (bool, string, error) { return use != startup, "not yet", nil })
		w.runs("c1", time.Now())
		w.p.AddPod(pod(probe(startup, 0, 10, 1, 30), probe(liveness, 0, 60, 1, 3), probe(readiness, 0, 60, 1, 3)))
		w.until(15)
		failed := " event Unhealthy on spec.containers{app}: Startup probe failed: not yet"
		w.want("0 Startup c1 at 10.1.0.2", "0"+failed, "10 Startup c1 at 10.1.0.2", "10"+failed)
		wantAnswer(t, w.p.Startup, "c1", "-")
		w.answers(always(true, "", nil))
		w.until(79)
		// Ready at once when startup has succeeded, and startup is not asked again.
		got := w.events()
		for _, line := range []string{"20 Startup c1 at 10.1.0.2", "20 Liveness c1 at 10.1.0.2", "20 Readiness c1 at 10.1.0.2", "20 update u1"} {
			if !strings.Contains(got, line) {
				t.Errorf("no %q in:\n%s", line, got)
			}
		}
		if strings.Count(got, "Startup") != 1 || strings.Count(got, "Readiness") != 1 {
			t.Errorf("asked too often:\n%s", got)
		}
		wantAnswer(t, w.p.Startup, "c1", "true")
		wantAnswer(t, w.p.Readiness, "c1", "true")
	})
}

func TestStartupFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answers(always(false, "no", nil))
		w.runs("c1", time.Now())
		w.p.AddPod(pod(probe(startup, 0, 1, 1, 3), probe(liveness, 0, 1, 1, 1)))
		w.until(20)
		wantAnswer(t, w.p.Startup, "c1", "false")
		wantAnswer(t, w.p.Liveness, "c1", "-")
		if got := strings.Count(w.events(), "Startup c1"); got != 3 {
			t.Errorf("startup was asked %d times, want 3", got)
		}
	})
}

func TestRestartOfTheAgent(t *testing.T) {
	tests := []struct {
		name    string
		told    v1.PodStatus
		startup string // the answer at once
	}{
		{"it had started", v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "app", ContainerID: "containerd://c1", Started: new(true)}}}, "true"},
		{"it had not started", v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "app", ContainerID: "containerd://c1", Started: new(false)}}}, "-"},
		{"another container had started", v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "app", ContainerID: "containerd://c0", Started: new(true)}}}, "-"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.answers(always(false, "no", nil))
				w.runs("c1", time.Now().Add(-time.Hour))
				w.p.AddPod(pod(probe(startup, 0, 10, 1, 2), probe(readiness, 0, 10, 1, 2)))
				w.until(9.999)
				wantAnswer(t, w.p.Startup, "c1", "-") // the API's word is waited for
				if got := w.events(); got != "" {
					t.Errorf("asked before it was known how far the container is:\n%s", got)
				}
				w.mu.Lock()
				w.told["u1"] = tt.told
				w.mu.Unlock()
				w.p.AddPod(pod(probe(startup, 0, 10, 1, 2), probe(readiness, 0, 10, 1, 2)))
				synctest.Wait()
				wantAnswer(t, w.p.Startup, "c1", tt.startup)
				wantAnswer(t, w.p.Readiness, "c1", "-")
				w.until(40)
				asked := strings.Count(w.events(), "Startup c1")
				if started := tt.startup == "true"; started != (asked == 0) {
					t.Errorf("startup was asked %d times", asked)
				}
			})
		})
	}
}

// TestSpread holds that the probes of many old containers do not begin at once,
// and begin at the same place each time.
func TestSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 100 {
		k := key{uid: types.UID(fmt.Sprint("pod", i)), container: "app", kind: readiness}
		offset := k.offset(10 * time.Second)
		if offset < 0 || offset >= 10*time.Second || offset != k.offset(10*time.Second) {
			t.Fatalf("offset of %v = %s", k, offset)
		}
		seen[offset.Truncate(time.Second)] = true
	}
	if len(seen) < 8 {
		t.Errorf("100 probes begin in %d of 10 seconds", len(seen))
	}
}

func TestNobodyCouldBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answers(always(false, "", errAway))
		w.runs("c1", time.Now())
		w.p.AddPod(pod(probe(liveness, 0, 10, 1, 1)))
		w.until(5)
		w.want("0 Liveness c1 at 10.1.0.2", "0 Liveness c1 at 10.1.0.2", "0 Liveness c1 at 10.1.0.2",
			"0 event Unhealthy on spec.containers{app}: Liveness probe errored and resulted in unknown state: runtime is away")
		wantAnswer(t, w.p.Liveness, "c1", "-")
	})
}

func TestWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answers(always(true, "redirected", nil))
		w.runs("c1", time.Now())
		w.p.AddPod(pod(probe(readiness, 0, 10, 1, 1)))
		w.until(1)
		w.want("0 Readiness c1 at 10.1.0.2", "0 event ProbeWarning on spec.containers{app}: Readiness probe warning: redirected", "0 update u1")
		wantAnswer(t, w.p.Readiness, "c1", "true")
	})
}

// TestSlowContainer holds that a probe that takes longer than its period is
// asked again at once, one at a time.
func TestSlowContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.takes = 15 * time.Second
		w.runs("c1", time.Now())
		w.p.AddPod(pod(probe(liveness, 0, 10, 1, 1)))
		w.until(31)
		w.want("0 Liveness c1 at 10.1.0.2", "15 Liveness c1 at 10.1.0.2", "15 update u1", "30 Liveness c1 at 10.1.0.2")
	})
}

func TestEndOfPods(t *testing.T) {
	spec := []func(*v1.Container){probe(liveness, 0, 10, 1, 1), probe(readiness, 0, 10, 1, 1)}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.runs("c1", time.Now())
		w.p.AddPod(pod(spec...))
		w.until(1)
		w.p.Terminate("u1")
		w.events()
		w.answers(always(false, "", nil))
		w.until(11)
		w.want("10 Readiness c1 at 10.1.0.2", "10 event Unhealthy on spec.containers{app}: Readiness probe failed: ", "10 update u1")
		wantAnswer(t, w.p.Liveness, "c1", "-")
		wantAnswer(t, w.p.Readiness, "c1", "false")

		t.Log("removed while it is being asked")
		w.mu.Lock()
		w.takes = 5 * time.Second
		w.mu.Unlock()
		w.until(21)
		w.p.RemovePod("u1")
		w.until(60)
		w.want("20 Readiness c1 at 10.1.0.2")
		wantAnswer(t, w.p.Readiness, "c1", "-")
		w.p.mu.Lock()
		defer w.p.mu.Unlock()
		if len(w.p.workers)+len(w.p.answers) != 0 {
			t.Errorf("%d workers and %d answers are left", len(w.p.workers), len(w.p.answers))
		}
		if n, err := testutil.GatherAndCount(w.reg); err != nil || n != 0 {
			t.Errorf("%d series are left, %v", n, err)
		}
	})
}

func TestRemovedBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStillWorld(t)
		w.runs("c1", time.Now())
		w.p.AddPod(pod(probe(liveness, 0, 10, 1, 1)))
		w.p.RemovePod("u1")
		w.p.AddPod(pod(probe(liveness, 0, 10, 1, 1)))
		w.run()
		w.until(1)
		w.want("0 Liveness c1 at 10.1.0.2", "0 update u1")
	})
}

func TestWaitsForTheContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		spec := probe(readiness, 0, 300, 1, 1)
		w.p.AddPod(pod(spec)) // nothing is known of it yet
		w.until(2)
		w.reports(observed.ContainerStatus{ID: "c1", Name: "app", State: observed.Created})
		w.p.AddPod(pod(spec))
		w.until(3)
		w.runs("c1", time.Now())
		w.p.AddPod(pod(spec)) // the sync that follows the start
		w.until(4)
		w.want("3 Readiness c1 at 10.1.0.2", "3 update u1")

		t.Log("it ends, and nobody says that the next one has started")
		w.reports(observed.ContainerStatus{ID: "c1", Name: "app", State: observed.Exited})
		w.until(310)
		w.want("")
		w.runs("c2", time.Now())
		w.until(321)
		if got := w.events(); !strings.Contains(got, "Readiness c2") {
			t.Errorf("the new container is not asked within the longest look: %q", got)
		}
	})
}

func TestSidecarsAndHostNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := pod()
		p.Spec.HostNetwork = true
		side, once := v1.Container{Name: "side"}, v1.Container{Name: "once"}
		side.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		probe(liveness, 0, 10, 1, 1)(&side)
		probe(readiness, 0, 10, 1, 1)(&once) // refused by the API; must not be asked
		p.Spec.InitContainers = []v1.Container{side, once}
		w.answers(always(false, "no", nil))
		w.reports(observed.ContainerStatus{ID: "s1", Name: "side", State: observed.Running, StartedAt: time.Now()},
			observed.ContainerStatus{ID: "o1", Name: "once", State: observed.Running, StartedAt: time.Now()})
		w.p.AddPod(p)
		w.until(1)
		w.want("0 Liveness s1 at 10.0.0.1", "0 event Unhealthy on spec.initContainers{side}: Liveness probe failed: no", "0 update u1")
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := 0
		w.answers(func(kind, string) (bool, string, error) {
			n++
			return n > 1, "", nil
		})
		w.runs("c1", time.Now())
		w.p.AddPod(pod(probe(readiness, 0, 10, 1, 3)))
		w.until(21)
		want := `
# HELP prober_probe_total Probes of containers, by what they are for and how they ended.
# TYPE prober_probe_total counter
prober_probe_total{container="app",namespace="default",pod="web",pod_uid="u1",probe_type="Readiness",result="failed"} 1
prober_probe_total{container="app",namespace="default",pod="web",pod_uid="u1",probe_type="Readiness",result="successful"} 2
`
		if err := testutil.GatherAndCompare(w.reg, strings.NewReader(want), "prober_probe_total"); err != nil {
			t.Error(err)
		}
		if n, err := testutil.GatherAndCount(w.reg, "prober_probe_duration_seconds"); err != nil || n != 1 {
			t.Errorf("%d series of durations, %v, want 1", n, err)
		}
	})
}

// TestSlowReader holds that announcements are neither lost nor pile up while
// nobody reads them.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cancel()
		synctest.Wait()
		p := w.p
		worker := newWorker(p, key{"u1", "app", readiness}, pod(), &v1.Container{}, &v1.Probe{})
		for i := range 100 {
			p.set(worker, "c1", i%2 == 0)
		}
		if len(p.changed) != 1 {
			t.Errorf("%d announcements wait, want 1", len(p.changed))
		}
	})
}
