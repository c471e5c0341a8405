package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

func (w *world) mount(pod *v1.Pod) {
	w.t.Helper()
	if err := w.mountWithin(pod, time.Minute); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) mountWithin(pod *v1.Pod, d time.Duration) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	return w.WaitForMount(ctx, pod)
}

func (w *world) unmountWithin(uid types.UID, d time.Duration) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	return w.Unmount(ctx, uid)
}

func (w *world) wantSteps(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(w.disk.steps(), want); diff != "" {
		w.t.Errorf("steps (-got +want):\n%s", diff)
	}
}

func (w *world) wantContent(uid types.UID, kind podvolumes.Kind, name, want string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.disk.content(uid, podvolumes.ID{Kind: kind, Dir: name}); got != want {
		w.t.Errorf("%s of %s holds %q, want %q", name, uid, got, want)
	}
}

func TestMountAndUnmount(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		w.api.set("cm", "1")
		pod := podOf("a", emptyDir("data"), configMap("cm"), claim("disk"), claim("same"))
		w.mount(pod)
		w.wantSteps("setUp a data", "setUp a cm", "setUp a disk", "setUp a same")
		want := map[string]string{
			"data": "/pods/a/kubernetes.io~empty-dir/data", "cm": "/pods/a/kubernetes.io~configmap/cm",
			"disk": "/pods/a/kubernetes.io~local-volume/pv", "same": "/pods/a/kubernetes.io~local-volume/pv",
		}
		if diff := cmp.Diff(w.Paths("a"), want); diff != "" {
			t.Errorf("paths (-got +want):\n%s", diff)
		}
		w.mount(pod) // again, as at every sync: nothing is done
		w.wantSteps()
		part, err := w.SubPath(t.Context(), podvolumes.SubPath{PodUID: "a", Container: "app", Volume: "data", Path: "x"})
		if err != nil || part != "/pods/a/parts/data/app/0" {
			t.Errorf("part %s, %v", part, err)
		}
		if _, err := w.SubPath(t.Context(), podvolumes.SubPath{PodUID: "a", Container: "app", Volume: "other", Path: "x"}); err == nil {
			t.Error("a part of what is not mounted")
		}
		if err := w.unmountWithin("a", time.Minute); err != nil {
			t.Fatal(err)
		}
		w.wantSteps("bindSubPath a x", "cleanSubPaths a", "tearDown a cm", "tearDown a data", "tearDown a pv")
		if len(w.Paths("a"))+len(d.volumes)+len(d.parts)+len(w.api.held) != 0 {
			t.Errorf("left: %v %v %v %v", w.Paths("a"), d.volumes, d.parts, w.api.held)
		}
		if err := w.unmountWithin("a", time.Minute); err != nil {
			t.Errorf("again: %v", err)
		}
		w.mount(pod) // and once more from the start
		if len(d.volumes) != 3 {
			t.Errorf("have %v", d.volumes)
		}
	})
}

func TestPodWithoutVolumes(t *testing.T) {
	run(t, newDisk(), func(t *testing.T, w *world) {
		w.mount(podOf("a"))
		if !w.api.held["a"] {
			t.Error("its objects are not held")
		}
		if err := w.unmountWithin("a", time.Second); err != nil {
			t.Error(err)
		}
	})
}

// What the API server refuses for a moment, as the token of a pod that it does not
// know everywhere yet, is asked for again soon, though nobody tells when.
func TestAsksAgainSoon(t *testing.T) {
	run(t, newDisk(), func(t *testing.T, w *world) {
		time.AfterFunc(50*time.Millisecond, func() { w.api.setQuietly("cm", "1") })
		if err := w.mountWithin(podOf("a", configMap("cm")), 100*time.Millisecond); err != nil {
			t.Error(err)
		}
	})
}

// A pod waits for what is missing, says for what, and goes on when it is there.
func TestWaitsForObject(t *testing.T) {
	run(t, newDisk(), func(t *testing.T, w *world) {
		pod := podOf("a", emptyDir("data"), configMap("cm"))
		err := w.mountWithin(pod, 2*time.Second)
		if !errors.Is(err, podvolumes.ErrWaiting) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `waiting for ConfigMap ns/cm (volume "cm"): not found`) {
			t.Errorf("err = %v", err)
		}
		if diff := cmp.Diff(w.Paths("a"), map[string]string{"data": "/pods/a/kubernetes.io~empty-dir/data"}); diff != "" {
			t.Errorf("paths (-got +want):\n%s", diff)
		}
		time.Sleep(time.Hour)
		done := make(chan time.Duration)
		go func() {
			start := time.Now()
			if err := w.mountWithin(pod, time.Hour); err != nil {
				t.Error(err)
			}
			done <- time.Since(start)
		}()
		synctest.Wait()
		w.api.set("cm", "1")
		if took := <-done; took != 0 {
			t.Errorf("went on %v after the object appeared", took)
		}
	})
}

func TestLiveUpdate(t *testing.T) {
	run(t, newDisk(), func(_ *testing.T, w *world) {
		w.api.set("cm", "1")
		pod := podOf("a", configMap("cm"), label("info"))
		w.mount(pod)
		w.api.set("cm", "2")
		w.wantContent("a", podvolumes.ConfigMap, "cm", "k=2")

		labelled := pod.DeepCopy()
		labelled.Labels = map[string]string{"l": "x"}
		w.mount(labelled)
		w.wantContent("a", podvolumes.DownwardAPI, "info", "l=x")

		// A ConfigMap that is deleted, or cannot be read, leaves what is there.
		w.api.set("cm", "")
		w.wantContent("a", podvolumes.ConfigMap, "cm", "k=2")
		w.mount(labelled)
		w.api.setDown(errors.New("away"))
		time.Sleep(time.Hour)
		w.wantContent("a", podvolumes.ConfigMap, "cm", "k=2")
		w.api.setDown(nil)
		w.api.setQuietly("cm", "3")
		time.Sleep(2 * time.Minute)
		w.wantContent("a", podvolumes.ConfigMap, "cm", "k=3")
	})
}

// What was mounted before a restart stays as it is, also while the API server
// is away; nothing is mounted twice, and what nobody wants goes when all is known.
func TestRestart(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		w.api.set("cm", "1")
		a, b := podOf("a", emptyDir("data"), configMap("cm"), claim("disk")), podOf("b", emptyDir("data"))
		w.mount(a)
		w.mount(b)
		w.disk.steps()

		w.restart()
		time.Sleep(time.Hour)
		w.wantSteps() // nobody has said anything yet
		w.api.setDown(errors.New("away"))
		w.mount(a)
		w.wantSteps("setUp a data")
		if len(w.Paths("a")) != 3 {
			t.Errorf("paths: %v", w.Paths("a"))
		}
		w.wantContent("a", podvolumes.ConfigMap, "cm", "k=1")

		if err := w.Sweep(t.Context(), func(uid types.UID) bool { return uid == "a" }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := slices.Collect(maps.Keys(d.pods)); !slices.Equal(got, []types.UID{"a"}) || len(d.volumes) != 3 {
			t.Errorf("left: %v %v", got, d.volumes)
		}
	})
}

func TestUnmountAfterRestart(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		w.mount(podOf("a", emptyDir("data")))
		w.restart()
		if err := w.unmountWithin("a", time.Second); err != nil || len(d.volumes) != 0 {
			t.Errorf("%v, left %v", err, d.volumes)
		}
	})
}

func TestFailuresAreTriedAgain(t *testing.T) {
	d := newDisk()
	full := errors.New("disk full")
	run(t, d, func(t *testing.T, w *world) {
		d.setFail("setUp data", full)
		pod := podOf("a", emptyDir("data"), emptyDir("more"))
		if err := w.mountWithin(pod, time.Minute); !errors.Is(err, full) || errors.Is(err, podvolumes.ErrWaiting) {
			t.Errorf("err = %v", err)
		}
		if got := w.Faults(); len(got) != 1 || got[0].Object != "Pod ns/pod-a" || !strings.Contains(got[0].Message, "disk full") || time.Since(got[0].Since) != time.Minute {
			t.Errorf("faults: %+v", got)
		}
		tries := 0
		for _, step := range w.disk.steps() {
			if step == "setUp a data" {
				tries++
			}
		}
		if tries < 3 || tries > 10 {
			t.Errorf("%d tries in a minute", tries)
		}
		d.setFail("setUp data", nil)
		if err := w.mountWithin(pod, 2*time.Minute); err != nil {
			t.Error(err)
		}
		if got := w.Faults(); len(got) != 0 {
			t.Errorf("faults: %+v", got)
		}

		busy := errors.New("busy")
		w.disk.steps()
		d.setFail("tearDown data", busy)
		if err := w.unmountWithin("a", 100*time.Millisecond); !errors.Is(err, busy) {
			t.Errorf("err = %v", err)
		}
		w.wantSteps("cleanSubPaths a", "tearDown a data", "tearDown a more")
		d.setFail("tearDown data", nil)
		if err := w.unmountWithin("a", time.Minute); err != nil {
			t.Error(err)
		}
		w.wantSteps("cleanSubPaths a", "tearDown a data")
	})
}

// Parts that cannot be unmounted keep their volume; a pod's folder goes last.
func TestTearDownOrder(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		w.mount(podOf("a", emptyDir("data")))
		w.restart()
		w.disk.steps()
		d.setFail("cleanSubPaths", errors.New("busy"))
		nobody := func(types.UID) bool { return false }
		for range 10 {
			if err := w.Sweep(t.Context(), nobody); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		w.wantSteps("cleanSubPaths a") // sweeping again does not try again at once
		d.setFail("cleanSubPaths", nil)
		d.setFail("tearDown data", errors.New("busy"))
		time.Sleep(time.Second)
		w.wantSteps("cleanSubPaths a", "tearDown a data")
		d.setFail("tearDown data", nil)
		time.Sleep(time.Minute)
		w.wantSteps("cleanSubPaths a", "tearDown a data", "removePod a")
	})
}

// A mount that hangs stops its own pod: others are mounted, and its place is
// given to them after a while.
func TestHangingMount(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		release := make(chan struct{})
		d.hang["setUp dead"] = release
		for i := range 2 { // as many as there are places
			if err := w.mountWithin(podOf(types.UID(fmt.Sprint("dead", i)), emptyDir("dead")), time.Millisecond); err == nil {
				t.Error("mounted")
			}
		}
		if err := w.mountWithin(podOf("a", emptyDir("data")), 6*time.Second); err != nil {
			t.Errorf("another pod: %v", err)
		}
		if err := w.stop(); err == nil || !strings.Contains(err.Error(), `Pod ns/pod-dead0: set up volume "dead"; Pod ns/pod-dead1: set up volume "dead"`) {
			t.Errorf("err = %v", err)
		}
		close(release)
		synctest.Wait()
	})
}

func TestParallel(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		release := make(chan struct{})
		d.hang["setUp data"] = release
		done := make(chan error, 5)
		for i := range 5 {
			go func() { done <- w.mountWithin(podOf(types.UID(fmt.Sprint(i)), emptyDir("data")), time.Minute) }()
		}
		synctest.Wait()
		close(release)
		for range 5 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if d.peak != 2 {
			t.Errorf("%d pods at once, want 2", d.peak)
		}
	})
}

// A pod that is wanted again while it is being unmounted is mounted in the end.
func TestWantedAgain(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		pod := podOf("a", emptyDir("data"))
		w.mount(pod)
		release := make(chan struct{})
		d.hang["tearDown data"] = release
		go func() { _ = w.unmountWithin("a", time.Second) }()
		synctest.Wait()
		done := make(chan error)
		go func() { done <- w.mountWithin(pod, time.Minute) }()
		synctest.Wait()
		close(release)
		if err := <-done; err != nil || len(d.volumes) != 1 || !w.api.held["a"] {
			t.Errorf("%v, have %v", err, d.volumes)
		}
		time.Sleep(time.Minute)
	})
}

func TestSweepSparesWanted(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		w.mount(podOf("a", emptyDir("data")))
		if err := w.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if len(d.volumes) != 1 {
			t.Error("swept from under its pod")
		}
	})
}

func TestContextWithoutRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for what, err := range map[string]error{"mount": m.WaitForMount(ctx, podOf("a")), "unmount": m.Unmount(ctx, "a"), "sweep": m.Sweep(ctx, nil)} {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// Random pods, failures and restarts: in the end exactly the volumes of the
// pods that are wanted are there.
func TestRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		for _, name := range []string{"c0", "c1"} {
			w.api.set(name, "0")
		}
		pods := map[types.UID]*v1.Pod{}
		for i := range 8 {
			uid := types.UID(fmt.Sprint("p", i))
			pods[uid] = podOf(uid, emptyDir("data"), configMap(fmt.Sprint("c", i%2)))
		}
		alive := map[types.UID]bool{}
		uids := slices.Sorted(maps.Keys(pods))
		for range 300 {
			uid := uids[rng.IntN(len(uids))]
			switch rng.IntN(8) {
			case 0, 1, 2:
				alive[uid] = true
				_ = w.mountWithin(pods[uid], time.Duration(rng.IntN(1000))*time.Millisecond)
			case 3, 4:
				delete(alive, uid)
				_ = w.unmountWithin(uid, time.Duration(rng.IntN(1000))*time.Millisecond)
			case 5:
				for _, op := range []string{"setUp data", "tearDown data", "cleanSubPaths"} {
					var err error
					if rng.IntN(3) == 0 {
						err = errors.New("fault")
					}
					d.setFail(op, err)
				}
			case 6:
				w.api.set(fmt.Sprint("c", rng.IntN(2)), fmt.Sprint(rng.IntN(10)))
			case 7:
				w.restart()
				for uid := range alive {
					_ = w.mountWithin(pods[uid], time.Millisecond)
				}
			}
		}
		for _, op := range []string{"setUp data", "tearDown data", "cleanSubPaths"} {
			d.setFail(op, nil)
		}
		for _, uid := range uids {
			if alive[uid] {
				w.mount(pods[uid])
			}
		}
		_ = w.Sweep(t.Context(), func(uid types.UID) bool { return alive[uid] })
		time.Sleep(10 * time.Minute)
		want := map[string]string{}
		for uid := range alive {
			name := pods[uid].Spec.Volumes[1].Name
			want[path(uid, podvolumes.ID{Kind: podvolumes.EmptyDir, Dir: "data"})] = ""
			want[path(uid, podvolumes.ID{Kind: podvolumes.ConfigMap, Dir: name})] = "k=" + w.api.values[name]
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if diff := cmp.Diff(d.volumes, want); diff != "" {
			t.Errorf("(-got +want):\n%s", diff)
		}
	})
}
