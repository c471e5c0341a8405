package volumestats

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientrecord "k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

func TestFirstFiguresComeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a, stop := run(t, w.config())
		defer stop()
		pass(10 * time.Second)
		late := pod("u", "there", "late")
		w.set(func() { w.pods, w.hidden["/u/late"] = []*v1.Pod{late}, true })
		a.Poke()
		pass(0)
		got := a.Volumes(late)
		if len(got) != 1 || got[0].Name != "there" || *got[0].UsedBytes != 8 || got[0].Stale || got[0].Method != podvolumes.ByWalk || !got[0].Ephemeral || got[0].Source != "emptyDir" {
			t.Fatalf("volumes %+v, want the one that is there", got)
		}
		w.set(func() { w.hidden["/u/late"] = false })
		pass(2 * time.Second)
		if got := a.Volumes(late); len(got) != 2 {
			t.Errorf("two seconds after it was mounted: %+v", got)
		}
		w.set(func() { w.pods = nil })
		a.Poke()
		pass(0)
		if got := a.Volumes(late); len(got) != 0 {
			t.Errorf("the pod is gone: %+v", got)
		}
	})
}

// TestSizeIsTheLimit holds that an emptyDir is as large as its sizeLimit, and that what is
// left is the smaller of what is left of that and of the disk.
func TestSizeIsTheLimit(t *testing.T) {
	usage := func(size, used, left uint64) podvolumes.Usage {
		return podvolumes.Usage{Method: podvolumes.ByWalk, CapacityBytes: &size, UsedBytes: &used, AvailableBytes: &left}
	}
	limited := func(limit string, medium v1.StorageMedium) v1.VolumeSource {
		return v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium, SizeLimit: new(resource.MustParse(limit))}}
	}
	for name, test := range map[string]struct {
		source         v1.VolumeSource
		measured, want podvolumes.Usage
	}{
		"a limit":               {limited("100", ""), usage(1000, 30, 500), usage(100, 30, 70)},
		"beyond it":             {limited("100", ""), usage(1000, 130, 500), usage(100, 130, 0)},
		"a disk that is full":   {limited("100", ""), usage(1000, 30, 5), usage(100, 30, 5)},
		"more than the disk":    {limited("2k", ""), usage(1000, 30, 500), usage(1000, 30, 500)},
		"none":                  {v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, usage(1000, 30, 500), usage(1000, 30, 500)},
		"in memory":             {limited("100", v1.StorageMediumMemory), usage(1000, 30, 500), usage(1000, 30, 500)},
		"another kind":          {v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}, usage(1000, 30, 500), usage(1000, 30, 500)},
		"nothing known of size": {limited("100", ""), podvolumes.Usage{}, podvolumes.Usage{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(ofLimit(&v1.Volume{Name: "v", VolumeSource: test.source}, test.measured), test.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

// TestSharedPath holds that volumes at one path have their figures one after the other.
func TestSharedPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		one, other := pod("one", "v", "w"), pod("other", "v")
		w.pods, w.same, w.takes = []*v1.Pod{one, other}, "/srv", 10*time.Millisecond
		a, stop := run(t, w.config())
		defer stop()
		pass(5 * time.Second)
		if got := len(a.Volumes(one)) + len(a.Volumes(other)); got != 3 {
			t.Errorf("%d of 3 have figures", got)
		}
		w.set(func() {
			if w.most != 1 {
				t.Errorf("%d measurements of it at once", w.most)
			}
		})
	})
}

// TestSpread holds that many pods are measured once a period each, and evenly.
func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		const pods = 200
		for i := range pods {
			w.pods = append(w.pods, pod(fmt.Sprintf("uid-%d", i), "v"))
		}
		_, stop := run(t, w.config())
		defer stop()
		pass(2 * time.Minute) // all in their places
		w.set(func() { w.calls, w.most = nil, 0 })
		busiest := 0
		for range 6 {
			before := 0
			w.set(func() { before = len(w.calls) })
			pass(10 * time.Second)
			w.set(func() { busiest = max(busiest, len(w.calls)-before) })
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.calls) != pods {
			t.Errorf("%d measurements in a period, want %d", len(w.calls), pods)
		}
		if busiest > pods/2 {
			t.Errorf("%d of %d measurements in ten seconds", busiest, pods)
		}
		if w.most > 2 {
			t.Errorf("%d at once", w.most)
		}
	})
}

// TestSlowWalksPause holds that what takes long is done rarely.
func TestSlowWalksPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.pods, w.takes = []*v1.Pod{pod("u", "big")}, time.Minute
		_, stop := run(t, w.config())
		defer stop()
		pass(time.Hour)
		if n := w.count("/u/big"); n < 4 || n > 6 {
			t.Errorf("%d walks of a minute in an hour, want a tenth of the time", n)
		}
	})
}

func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p, other := pod("u", "good", "bad"), pod("o", "v")
		w.pods = []*v1.Pod{p, other}
		cfg := w.config()
		cfg.Deadline, cfg.Parallel = 5*time.Second, 1
		a, stop := run(t, cfg)
		defer stop()
		pass(time.Second)
		hang := make(chan struct{})
		w.set(func() { w.hang["/u/bad"] = hang })
		pass(2 * time.Minute)
		bad := w.count("/u/bad")
		var good int
		for range 4 {
			pass(time.Minute)
			good = w.count("/u/good")
		}
		if n := w.count("/u/bad"); n != bad {
			t.Errorf("%d tries of a mount that hangs, want one", n-bad+1)
		}
		if n := w.count("/o/v"); n < 5 || good < 5 {
			t.Errorf("beside a volume that hangs, others were measured %d and %d times in six minutes", n, good)
		}
		states := map[string]bool{}
		for _, v := range a.Volumes(p) {
			states[v.Name] = v.Stale
		}
		if diff := cmp.Diff(states, map[string]bool{"good": false, "bad": true}); diff != "" {
			t.Errorf("stale (-got +want):\n%s", diff)
		}
		if n := strings.Count(w.log.String(), "cannot be measured"); n != 1 {
			t.Errorf("told %d times:\n%s", n, &w.log)
		}
		pass(10 * time.Minute)
		if got := a.Volumes(p); len(got) != 1 {
			t.Errorf("after very long: %+v, want only what is known", got)
		}
		w.set(func() { delete(w.hang, "/u/bad") })
		close(hang)
		pass(2 * time.Minute)
		if got := a.Volumes(p); len(got) != 2 || got[1].Stale {
			t.Errorf("it answers again: %+v", got)
		}
		before := w.count("/u/bad")
		pass(5 * time.Minute)
		if n := w.count("/u/bad") - before; n < 4 {
			t.Errorf("measured %d times in five minutes after it hung: it paused as if that had been work", n)
		}
	})
}

// TestHangDoesNotHoldUpTheEnd holds that Run returns with a call that does not.
func TestHangDoesNotHoldUpTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		hang := make(chan struct{})
		w.pods, w.hang["/u/v"] = []*v1.Pod{pod("u", "v")}, hang
		_, stop := run(t, w.config())
		pass(time.Second)
		began := time.Now()
		stop()
		if since := time.Since(began); since != 0 {
			t.Errorf("it took %v", since)
		}
		close(hang)
	})
}

func TestFailure(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		told int
	}{
		"broken":  {errors.New("input/output error"), 1},
		"gone":    {fmt.Errorf("stat: %w", os.ErrNotExist), 0},
		"no size": {podvolumes.ErrNoUsage, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				p := pod("u", "v")
				w.pods = []*v1.Pod{p}
				a, stop := run(t, w.config())
				defer stop()
				pass(time.Second)
				w.set(func() { w.fail["/u/v"] = test.err })
				pass(3 * time.Minute)
				if got := a.Volumes(p); len(got) != 1 || !got[0].Stale || got[0].UsedBytes == nil {
					t.Errorf("%+v, want the last figures, stale", got)
				}
				if n := strings.Count(w.log.String(), "cannot be measured"); n != test.told {
					t.Errorf("told %d times, want %d", n, test.told)
				}
				w.set(func() { delete(w.fail, "/u/v") })
				pass(2 * time.Minute)
				if got := a.Volumes(p); len(got) != 1 || got[0].Stale {
					t.Errorf("mended: %+v", got)
				}
			})
		})
	}
}

func TestOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := pod("u", "v")
		w.pods = []*v1.Pod{p}
		cfg := w.config()
		cfg.Period = -1
		a, stop := run(t, cfg)
		defer stop()
		a.Poke()
		pass(time.Hour)
		if len(a.Volumes(p)) != 0 || len(w.calls) != 0 || !strings.Contains(w.log.String(), "volumeStatsAggPeriod is negative") {
			t.Errorf("measured %v, log %s", w.calls, &w.log)
		}
	})
}

// TestPeriod holds what kubeadm's files expect, which say 0.
func TestPeriod(t *testing.T) {
	for period, want := range map[time.Duration]time.Duration{0: time.Minute, time.Second: time.Second, -1: time.Minute} {
		if a := New(Config{Period: period}); a.cfg.Period != want || a.off != (period < 0) {
			t.Errorf("%v: a period of %v, off %v; want %v", period, a.cfg.Period, a.off, want)
		}
	}
}

// TestRestart holds that a restart keeps the figures and makes no burst.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for i := range 50 {
			w.pods = append(w.pods, pod(fmt.Sprintf("uid-%d", i), "v"))
		}
		cfg := w.config()
		cfg.File = filepath.Join(t.TempDir(), "volumes.json")
		a, stop := run(t, cfg)
		pass(10 * time.Second)
		before := a.Volumes(w.pods[7])
		stop()

		// The sources do not answer at once.
		pods := w.pods
		w.set(func() { w.pods, w.calls = nil, nil })
		a, stop = run(t, cfg)
		defer stop()
		pass(5 * time.Second)
		w.set(func() { w.pods = pods })
		a.Poke()
		pass(0)
		after := a.Volumes(pods[7])
		if len(after) != 1 || len(before) != 1 || *after[0].UsedBytes != *before[0].UsedBytes || before[0].Time.Sub(after[0].Time).Abs() > time.Second {
			t.Errorf("after a restart %+v, before %+v", after, before)
		}
		var n int
		w.set(func() { n = len(w.calls) })
		if n > 10 {
			t.Errorf("%d of 50 were measured at once", n)
		}
		pass(time.Minute)
		if n := w.count("/uid-7/v"); n != 1 {
			t.Errorf("measured %d times in the first minute", n)
		}
	})
}

// TestAbnormal holds that an event tells what is wrong with a volume when it begins or
// becomes something else, and not again after a restart.
func TestAbnormal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		sick := pod("u", "data")
		w.pods = []*v1.Pod{pod("other", "data"), sick}
		w.hidden["/other/data"] = true
		sent := clientrecord.NewFakeRecorder(10)
		cfg := w.config()
		cfg.Events, cfg.File = sent, filepath.Join(t.TempDir(), "volumes.json")
		a, stop := run(t, cfg)
		defer func() { stop() }()
		const event = "Warning VolumeConditionAbnormal Volume data: "
		for _, step := range []struct {
			ill  *string
			want []string
		}{
			{nil, nil},
			{new(""), nil},
			{new("a bad disk"), []string{event + "a bad disk"}},
			{new("a bad disk"), nil},
			{new("two bad disks"), []string{event + "two bad disks"}},
			{new(""), nil},
			{new("a bad disk"), []string{event + "a bad disk"}},
		} {
			w.set(func() { w.ill = step.ill })
			pass(2 * time.Minute)
			var got []string
			for len(sent.Events) > 0 {
				got = append(got, <-sent.Events)
			}
			if !slices.Equal(got, step.want) {
				t.Errorf("events %q, want %q", got, step.want)
			}
			if now := a.Volumes(sick)[0].Abnormal; (now == nil) != (step.ill == nil) || now != nil && *now != *step.ill {
				t.Errorf("it is said to be %v, want %v", now, step.ill)
			}
		}
		stop()
		_, stop = run(t, cfg)
		pass(2 * time.Minute)
		if len(sent.Events) > 0 {
			t.Errorf("after a restart: %s", <-sent.Events)
		}
	})
}

func TestLoadRefuses(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"damaged": {"{", "it is damaged"},
		"newer":   {`{"version": 2}`, "it has format 2 and this program reads 1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			cfg := w.config()
			cfg.File = filepath.Join(t.TempDir(), "volumes.json")
			if err := os.WriteFile(cfg.File, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			New(cfg).load()
			if !strings.Contains(w.log.String(), test.want) {
				t.Errorf("log %s, want %q", &w.log, test.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"pods":{"u":{"v":{"measured":"2026-01-02T03:04:05Z","method":"walk","usedBytes":1}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := parse(data); err == nil && r.Version != fileVersion {
			t.Errorf("version %d", r.Version)
		}
	})
}

// TestClaims is upstream's table: which volumes are of a claim.
func TestClaims(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db"}}
	for name, test := range map[string]struct {
		source    v1.VolumeSource
		claim     string
		ephemeral bool
	}{
		"claim":             {v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}, "data", false},
		"generic ephemeral": {v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}, "db-v", false},
		"emptyDir":          {v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, "", true},
		"emptyDir, memory":  {v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}, "", false},
		"configMap":         {v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}, "", true},
		"secret":            {v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}, "", false},
		"hostPath":          {v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}, "", false},
		"CSI, inline":       {v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}, "", false},
	} {
		v := &v1.Volume{Name: "v", VolumeSource: test.source}
		claim := claimOf(p, v)
		if claim != test.claim || isEphemeral(v) != test.ephemeral || kindOf(v) == "other" {
			t.Errorf("%s: claim %q, ephemeral %v, kind %s", name, claim, isEphemeral(v), kindOf(v))
		}
	}
}

func TestNextAt(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	phases := map[time.Duration]bool{}
	for i := range 100 {
		uid := types.UID(fmt.Sprint("uid", i))
		at := nextAt(uid, now, 0, time.Minute)
		if wait := at.Sub(now); wait < 30*time.Second || wait > 90*time.Second {
			t.Errorf("%s: in %v", uid, wait)
		}
		if again := nextAt(uid, at, 0, time.Minute); again.Sub(at) != time.Minute {
			t.Errorf("%s: %v later, want a period", uid, again.Sub(at))
		}
		phases[at.Sub(now).Truncate(6*time.Second)] = true
	}
	if len(phases) < 10 {
		t.Errorf("they are not spread: %v", phases)
	}
}

// TestMetrics holds the name of upstream's metric and the words of its label.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.pods = []*v1.Pod{pod("u", "v")}
		cfg := w.config()
		registry := prometheus.NewPedanticRegistry()
		cfg.Metrics = registry
		_, stop := run(t, cfg)
		pass(time.Second)
		stop()
		families, err := registry.Gather()
		if err != nil || len(families) != 1 || families[0].GetName() != "kubelet_volume_metric_collection_duration_seconds" {
			t.Fatalf("%v, %v", families, err)
		}
		m := families[0].GetMetric()[0]
		if m.GetLabel()[0].GetName() != "metric_source" || m.GetLabel()[0].GetValue() != "du" || m.GetHistogram().GetSampleCount() != 1 {
			t.Errorf("%v", m)
		}
		for method, want := range map[podvolumes.Method]string{
			podvolumes.ByQuota: "fsquota", podvolumes.ByFilesystem: "statfs", podvolumes.ByDevice: "block", podvolumes.ByDriver: "driver.example",
		} {
			if got := source(podvolumes.Usage{Method: method, Driver: "driver.example"}); got != want {
				t.Errorf("%s is %s, want %s", method, got, want)
			}
		}
	})
}
