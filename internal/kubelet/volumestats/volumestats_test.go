package volumestats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientrecord "k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a node of pods whose volumes take what it is told.
type world struct {
	mu      sync.Mutex // guards the fields below
	pods    []*v1.Pod
	hidden  map[string]bool          // paths that are not there yet
	same    string                   // the path of all volumes; empty: each has its own
	hang    map[string]chan struct{} // paths that do not answer until it is closed
	fail    map[string]error
	calls   []string // paths, in order
	running int
	most    int           // that ran at once
	takes   time.Duration // of each call
	ill     *string       // what is wrong with all volumes
	log     bytes.Buffer
}

func newWorld() *world {
	return &world{hidden: map[string]bool{}, hang: map[string]chan struct{}{}, fail: map[string]error{}}
}

func pod(uid string, volumes ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: types.UID(uid)}}
	for _, name := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	}
	return p
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) Pods() []*v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.pods)
}

func (w *world) Paths(uid types.UID) map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	paths := map[string]string{}
	for _, p := range w.pods {
		if p.UID != uid {
			continue
		}
		for _, v := range p.Spec.Volumes {
			path := fmt.Sprintf("/%s/%s", uid, v.Name)
			if w.same != "" {
				path = w.same
			}
			if !w.hidden[path] {
				paths[v.Name] = path
			}
		}
	}
	return paths
}

func (w *world) Measure(ctx context.Context, path string) (podvolumes.Usage, error) {
	w.mu.Lock()
	w.calls = append(w.calls, path)
	w.running++
	w.most = max(w.most, w.running)
	hang, takes := w.hang[path], w.takes
	w.mu.Unlock()
	if hang != nil {
		<-hang // whatever the context says
	}
	var err error
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		if hang == nil {
			err = ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if err != nil {
		return podvolumes.Usage{}, err
	}
	used := uint64(len(path))
	return podvolumes.Usage{Method: podvolumes.ByWalk, UsedBytes: &used, Abnormal: w.ill}, w.fail[path]
}

func (w *world) count(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.calls {
		if c == path {
			n++
		}
	}
	return n
}

func (w *world) config() Config {
	return Config{Pods: w.Pods, Paths: w, Measurer: w, Log: slog.New(slog.NewTextHandler(&w.log, nil))}
}

// run runs an Analyzer until the returned function is called, which waits for its end.
func run(t *testing.T, cfg Config) (*Analyzer, func()) {
	t.Helper()
	a := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return a, func() {
		cancel()
		<-ended
	}
}

// pass lets time pass, and what is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

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

// refresh asks for figures of now, and returns how long that took.
func refresh(t *testing.T, a *Analyzer, pods ...*v1.Pod) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	a.Refresh(ctx, 5*time.Second, pods...)
	return time.Since(began)
}

// TestRefresh holds that who needs figures of now gets them, by the measurements that
// there are, and that nothing else is measured for it.
func TestRefresh(t *testing.T) {
	for name, period := range map[string]time.Duration{"on": 0, "off": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				p := pod("u", "v", "late", "memory")
				p.Spec.Volumes[2].EmptyDir.Medium = v1.StorageMediumMemory
				w.pods, w.hidden["/u/late"], w.takes = []*v1.Pod{p, pod("o", "v")}, true, 100*time.Millisecond
				cfg := w.config()
				cfg.Period = period
				a, stop := run(t, cfg)
				defer stop()
				pass(20 * time.Second)
				w.set(func() { w.calls = nil })
				if took := refresh(t, a, p); took != 100*time.Millisecond {
					t.Errorf("it took %v, want as long as one measurement", took)
				}
				if got := a.Volumes(p); len(got) == 0 || got[0].Name != "v" || got[0].Stale || time.Since(got[0].Time) != 0 {
					t.Errorf("volumes %+v, want v of now", got)
				}
				pass(4 * time.Second)
				if took := refresh(t, a, p); took != 0 {
					t.Errorf("with figures that are new it took %v", took)
				}
				pass(2 * time.Second)
				refresh(t, a, p)
				w.set(func() {
					if diff := cmp.Diff(w.calls, []string{"/u/v", "/u/v"}); diff != "" {
						t.Errorf("measured (-got +want):\n%s", diff)
					}
				})
				pass(time.Hour)
				if n := w.count("/o/v"); (n > 0) != (period == 0) {
					t.Errorf("another pod was measured %d times", n)
				}
			})
		})
	}
}

// TestRefreshOfMuch holds that what takes long to measure is not measured for everybody
// who asks, and that its figures are good for as long.
func TestRefreshOfMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := pod("u", "big")
		w.pods, w.takes = []*v1.Pod{p}, 30*time.Second
		a, stop := run(t, w.config())
		defer stop()
		pass(time.Minute)
		for range 6 * 60 {
			refresh(t, a, p)
			if got := a.Volumes(p); len(got) != 1 || got[0].Stale {
				t.Fatalf("volumes %+v, want figures that are good", got)
			}
			pass(10 * time.Second)
		}
		if n := w.count("/u/big"); n < 9 || n > 13 {
			t.Errorf("%d walks of 30 s in an hour, want a tenth of the time", n)
		}
	})
}

// TestVeryMuch holds that a count that takes longer than a call may comes to its end, is
// given up at last, and keeps nobody else waiting.
func TestVeryMuch(t *testing.T) {
	for name, test := range map[string]struct {
		takes time.Duration
		known bool
	}{
		"ten minutes": {10 * time.Minute, true},
		"too much":    {time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				p, other := pod("u", "big"), pod("o", "v")
				w.pods, w.takes = []*v1.Pod{p}, test.takes
				cfg := w.config()
				cfg.Parallel = 1
				a, stop := run(t, cfg)
				defer stop()
				pass(time.Second)
				w.set(func() { w.pods, w.takes = append(w.pods, other), 0 })
				pass(4 * time.Minute)
				if n := w.count("/o/v"); n == 0 {
					t.Error("another volume waits for it")
				}
				pass(20 * time.Minute)
				if got := a.Volumes(p); (len(got) == 1 && !got[0].Stale) != test.known {
					t.Errorf("volumes %+v, want figures: %v", got, test.known)
				}
				for range 30 {
					refresh(t, a, p)
					pass(10 * time.Second)
				}
				if n := w.count("/u/big"); n != 1 {
					t.Errorf("%d counts in half an hour", n)
				}
			})
		})
	}
}

// TestRefreshEnds holds that nobody waits for what hangs, fails or is gone.
func TestRefreshEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		bad, hung, gone, other := pod("bad", "v"), pod("hung", "v"), pod("gone", "v"), pod("o", "v")
		hang := make(chan struct{})
		w.pods, w.fail["/bad/v"], w.hang["/hung/v"] = []*v1.Pod{bad, hung, other}, errors.New("input/output error"), hang
		cfg := w.config()
		cfg.Deadline = 3 * time.Second
		a, stop := run(t, cfg)
		defer stop()
		defer close(hang)
		pass(time.Second)
		if took := refresh(t, a, bad, gone, other); took != 0 {
			t.Errorf("one that fails and one that is gone took %v", took)
		}
		if took := refresh(t, a, hung); took != 2*time.Second {
			t.Errorf("one that hangs took %v, want what is left of its deadline", took)
		}
		if took := refresh(t, a, hung); took != 0 {
			t.Errorf("the second time it took %v", took)
		}
		if n := w.count("/hung/v"); n != 1 {
			t.Errorf("%d tries of what hangs", n)
		}
	})
}
