package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("%s (-got +want):\n%s", what, diff)
	}
}

// TestKeeps follows one pod: what is written for it, what only when it changes,
// and what goes with it.
func TestKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.agent()
		same(t, "before the API answered", w.look(c), []string(nil))

		p := pod("a")
		w.online(p)
		same(t, "first", w.look(c), []string{
			"write Answer", "write Node", "write ConfigMap default/cm", "write Secret default/s", "write Token of the pod with UID a-uid", "write Services default", "write Pod default/a",
		})
		same(t, "nothing changed", w.look(c), []string(nil))

		w.set(func() {
			w.objects = map[podvolumes.Ref]runtime.Object{configMapRef: configMap("2"), secretRef: secret("1")}
			w.edition++
		})
		same(t, "one object changed", w.look(c), []string{"write ConfigMap default/cm"})

		ready := *p
		ready.ResourceVersion = "8"
		ready.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		ready.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Ready: true, ImageID: "sha256:1"}}
		w.set(func() { w.pods = []*v1.Pod{&ready} })
		same(t, "the pod has an image", w.look(c), []string{"write Pod default/a"})
		unready := ready
		unready.Status.Conditions, unready.ResourceVersion = nil, "9"
		unready.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", ImageID: "sha256:1"}}
		w.set(func() { w.pods = []*v1.Pod{&unready} })
		same(t, "readiness is not kept", w.look(c), []string(nil))

		again := w.agent()
		same(t, "another agent writes nothing anew", w.look(again), []string(nil))

		w.set(func() { w.objects = map[podvolumes.Ref]runtime.Object{configMapRef: nil, secretRef: secret("1")} })
		same(t, "an object is deleted", w.look(again), []string{"remove ConfigMap default/cm"})

		w.set(func() { w.pods = nil })
		got := w.look(again)
		if len(got) != 4 || got[0] != "remove Pod default/a" {
			t.Errorf("the pod is gone: %v", got)
		}
		same(t, "left", len(w.disk.files), 2) // the node and the answer
	})
}

// TestNothingGoesOnSilence holds that the disk stays as it is until the API has
// said which pods there are.
func TestNothingGoesOnSilence(t *testing.T) {
	w := newWorld(t)
	w.online(pod("a"), pod("b"))
	w.look(w.agent())
	before := len(w.disk.files)
	w.boot()
	c := w.agent()
	same(t, "looked at", w.look(c), []string(nil))
	same(t, "restored", names(c.Restore(t.Context())), "a b")
	same(t, "looked at", w.look(c), []string(nil))
	w.online(pod("b"))
	same(t, "deleted centrally meanwhile", slices.Contains(w.look(c), "remove Pod default/a"), true)
	if after := len(w.disk.files); after != before-2 { // the pod and its token
		t.Errorf("%d files of %d are left", after, before)
	}
}

// TestRestore gives everything back to an agent without an API.
func TestRestore(t *testing.T) {
	w := newWorld(t)
	p := pod("a", func(p *v1.Pod) {
		p.Annotations = map[string]string{"kubernetes.io/config.source": "api", "kubernetes.io/config.seen": "x", "mine": "1"}
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady}, {Type: "example.com/gate"}}
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Ready: true, ImageID: "sha256:1", RestartCount: 3}}
		p.Status.PodIPs = []v1.PodIP{{IP: "10.0.0.7"}}
	})
	w.online(p)
	w.look(w.agent())
	w.boot()
	c := w.agent()
	got := c.Restore(t.Context())
	if len(got) != 1 {
		t.Fatal(got)
	}
	want := p.DeepCopy()
	want.ResourceVersion, want.Generation = "", 0
	want.Annotations = map[string]string{"mine": "1"}
	want.Status = v1.PodStatus{
		Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: "example.com/gate"}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "c", ImageID: "sha256:1", RestartCount: 3}},
	}
	same(t, "pod", got[0], want)
	if !c.Restored("a-uid") || c.Restored("b-uid") {
		t.Error("Restored does not know its pods")
	}

	object, err := c.Object(configMapRef)
	same(t, "config map", object, runtime.Object(configMap("1")))
	same(t, "error", err, nil)
	object, err = c.Object(secretRef)
	same(t, "secret", object, runtime.Object(secret("1")))
	same(t, "error", err, nil)
	if _, err := c.Object(claimRef); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an object that is not kept: %v", err)
	}
	token, err := c.Token("default", "default", tokenRequest("a-uid"))
	if err != nil || token.Status.Token != "token of a" {
		t.Errorf("token: %v, %v", token, err)
	}
	services, err := c.Services("default")
	if err != nil || len(services) != 1 || services[0].Spec.ClusterIP != "10.0.0.1" {
		t.Errorf("services: %v, %v", services, err)
	}
	if node := c.Node(); node == nil || node.Labels["zone"] != "z" {
		t.Errorf("node: %v", node)
	}

	if f := faults(c); len(f) != 1 || !strings.HasPrefix(f[0], "Pods: 1 of them run from the checkpoint of "+time.Now().UTC().Format(time.DateOnly)) {
		t.Errorf("faults: %v", f)
	}
	if _, ok := c.Since(); !ok {
		t.Error("it does not say that pods run from it")
	}
	w.online(p)
	if _, ok := c.Since(); ok || len(faults(c)) != 0 || c.Restored("a-uid") {
		t.Errorf("the API has answered: %v", faults(c))
	}
}

func TestAge(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		name    string
		passed  time.Duration // by the clock, since the last answer
		offline time.Duration // the node ran since without one
		maxAge  time.Duration
		started bool
	}{
		{"young", day, 0, 0, true},
		{"just not too old", 7*day - time.Minute, 0, 0, true},
		{"too old", 7*day + time.Minute, 0, 0, false},
		{"too old for this node", 2 * day, 0, day, false},
		{"older is allowed", 30 * day, 0, 60 * day, true},
		{"for ever", 3000 * day, 3000 * day, -1, true},
		{"the clock went back", -20000 * day, 0, 0, true},
		{"the clock went back, and the node has run for long", -20000 * day, 8 * day, 0, false},
		{"the clock went back, and the node has run a little", -20000 * day, 6 * day, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.online(pod("runs"), pod("stopped"), pod("ends", func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }))
			w.look(w.agent())
			writeJSON(t, w.disk, answerKey, answer{time.Now().Add(-tt.passed), tt.offline})
			w.boot()
			w.set(func() { w.runs = map[types.UID]bool{"runs-uid": true} })
			c := w.agent(func(c *Config) { c.MaxAge = tt.maxAge })
			want := "ends runs stopped"
			if !tt.started {
				want = "ends runs" // what runs stays, and what was to end still ends
			}
			same(t, "restored", names(c.Restore(t.Context())), want)
			told := strings.Contains(strings.Join(faults(c), "\n"), "not started: default/stopped. They start when the API answers, or with a longer maxAge")
			same(t, "told", told, !tt.started)
		})
	}
	t.Run("not known", func(t *testing.T) {
		w := newWorld(t)
		w.online(pod("a"))
		w.look(w.agent())
		w.boot()
		w.disk.damage(answerKey, checkpointfile.ErrDamaged)
		c := w.agent()
		same(t, "restored", names(c.Restore(t.Context())), "")
		if f := strings.Join(faults(c), "\n"); !strings.Contains(f, "a time that is not known") || !strings.Contains(f, "Answer: what is kept of it cannot be used") {
			t.Errorf("faults: %s", f)
		}
	})
}

func writeJSON(t *testing.T, d *disk, key checkpointfile.Key, object answer) {
	t.Helper()
	data := fmt.Appendf(nil, `{"answered":%q,"offlineNanoseconds":%d}`, object.Answered.Format(time.RFC3339Nano), object.Offline)
	if err := d.Write(key, data); err != nil {
		t.Fatal(err)
	}
}

// TestAnswerIsWrittenRarely counts writes over hours with and without the API.
func TestAnswerIsWrittenRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.online(pod("a"))
		stop := runtest.Start(t, w.agent().Run)
		answers := func() (n int) {
			for _, line := range w.disk.changes() {
				if line == "write Answer" {
					n++
				}
			}
			return n
		}
		kept := func() (a answer) {
			c := w.agent()
			c.Restore(t.Context())
			return c.mu.restored.answer
		}
		for range 60 { // an hour
			time.Sleep(time.Minute)
			w.set(func() { w.answered = time.Now() })
		}
		if n := answers(); n < 5 || n > 8 {
			t.Errorf("written %d times in an hour", n)
		}
		last := time.Now()
		time.Sleep(3 * time.Hour) // the API is away
		synctest.Wait()
		if n := answers(); n < 15 || n > 20 {
			t.Errorf("written %d times in three hours", n)
		}
		if a := kept(); a.Answered.Sub(last).Abs() > time.Second || a.Offline < 2*time.Hour+40*time.Minute || a.Offline > 3*time.Hour {
			t.Errorf("kept %v (%v), want %v and about 3 hours", a.Answered, a.Offline, last)
		}
		stop()

		w.boot() // and it stays away: what was run before counts
		agent := w.agent()
		agent.Restore(t.Context())
		stop = runtest.Start(t, agent.Run)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if a := kept(); a.Answered.Sub(last).Abs() > time.Second || a.Offline < 4*time.Hour+20*time.Minute || a.Offline > 5*time.Hour {
			t.Errorf("after a restart: kept %v (%v), want %v and about 5 hours", a.Answered, a.Offline, last)
		}
		w.online(pod("a"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if a := kept(); a.Offline != 0 || time.Since(a.Answered) > 2*time.Minute {
			t.Errorf("the API is back: kept %v (%v)", a.Answered, a.Offline)
		}
		stop()
	})
}

// TestDamage holds that what cannot be read costs only itself, is told, and is
// written anew once the API says what it is.
func TestDamage(t *testing.T) {
	for name, err := range map[string]error{
		"damaged": checkpointfile.ErrDamaged, "another key": checkpointfile.ErrKey, "no key": checkpointfile.ErrNoKey, "newer": checkpointfile.ErrNewer, "plain": checkpointfile.ErrPlain,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.online(pod("a"), pod("b"))
			w.look(w.agent())
			w.boot()
			gone := checkpointfile.PodKey("default", "gone", "gone-uid")
			w.disk.damage(checkpointfile.PodKey("default", "a", "a-uid"), err)
			w.disk.damage(gone, err)
			w.disk.damage(refKey(secretRef), err)
			c := w.agent()
			same(t, "restored", names(c.Restore(t.Context())), "b")
			if _, got := c.Object(secretRef); !errors.Is(got, err) {
				t.Errorf("the damaged object: %v", got)
			}
			if _, got := c.Object(configMapRef); got != nil {
				t.Errorf("the other object: %v", got)
			}
			got := strings.Join(faults(c), "\n")
			for _, want := range []string{"Pod default/a: what is kept of it cannot be used: " + err.Error(), "Secret default/s: ", "Pod default/gone: "} {
				if !strings.Contains(got, want) {
					t.Errorf("faults lack %q:\n%s", want, got)
				}
			}
			same(t, "while the API is away", w.look(c), []string(nil))

			w.online(pod("a"), pod("b"))
			changes := w.look(c)
			slices.Sort(changes)
			same(t, "the API is back", changes, []string{"remove Pod default/gone", "write Pod default/a", "write Secret default/s"})
			same(t, "faults", faults(c), []string(nil))
		})
	}
}

// TestKeyIsLost holds that nothing is written or removed while the key cannot be
// used, that this is told, and that it heals.
func TestKeyIsLost(t *testing.T) {
	w := newWorld(t)
	w.online(pod("a"))
	w.look(w.agent())
	w.boot()
	w.disk.check = errors.New("key of the checkpoint: stat /k: no such file or directory")
	for _, f := range w.disk.files {
		w.disk.damage(f.Key, w.disk.check)
	}
	c := w.agent()
	same(t, "restored", names(c.Restore(t.Context())), "")
	w.online(pod("b"))
	c.look()
	same(t, "changes", w.disk.changes(), []string(nil))
	if got := strings.Join(faults(c), "\n"); !strings.Contains(got, "Checkpoint: cannot be kept up to date: key of the checkpoint") {
		t.Errorf("faults: %s", got)
	}
	w.disk.mu.Lock()
	w.disk.check = nil
	w.disk.mu.Unlock()
	if got := w.look(c); !slices.Contains(got, "write Pod default/b") || !slices.Contains(got, "remove Pod default/a") {
		t.Errorf("the key is back: %v", got)
	}
	same(t, "faults", faults(c), []string(nil))
}

// TestFullDisk holds that a failed write is told and made again, and that others
// are made all the same.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	w.online(pod("a"))
	c := w.agent()
	w.disk.failed = errFull
	c.look()
	if got := faults(c); len(got) != 1 || !strings.Contains(got[0], "keep Pod default/a: no space left on device") {
		t.Errorf("faults: %v", got)
	}
	w.disk.failed = nil
	same(t, "written", len(w.look(c)), 7)
	same(t, "faults", faults(c), []string(nil))
}

// TestClaims holds that PersistentVolumes are kept with the claims of pods, and
// their CSI drivers, and stay while it is not known which these are.
func TestClaims(t *testing.T) {
	w := newWorld(t)
	p := pod("a", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	})
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data"}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "disks.example.com"}
	driverRef := podvolumes.Ref{Kind: podvolumes.RefCSIDriver, Name: "disks.example.com"}
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverRef.Name}}
	all := []podvolumes.Ref{claimRef, pvRef, driverRef}
	w.online(p)
	w.set(func() {
		w.objects = map[podvolumes.Ref]runtime.Object{claimRef: claim, pvRef: pv, driverRef: driver}
	})
	w.look(w.agent())
	w.boot()
	c := w.agent()
	for _, ref := range all {
		if _, err := c.Object(ref); err != nil {
			t.Error(err)
		}
	}
	w.online(p) // the pods are known, and not yet what they use
	w.set(func() { w.objects = nil })
	w.look(c)
	for _, ref := range all {
		if _, err := c.Object(ref); err != nil {
			t.Error(err)
		}
	}
	w.set(func() { w.objects = map[podvolumes.Ref]runtime.Object{claimRef: claim} }) // the driver is not back yet
	w.look(c)
	for _, ref := range all {
		if _, err := c.Object(ref); err != nil {
			t.Error(err)
		}
	}
	w.set(func() { w.objects = map[podvolumes.Ref]runtime.Object{claimRef: nil} })
	w.look(c)
	for _, ref := range all {
		if _, err := c.Object(ref); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of a claim that is gone: %v", ref, err)
		}
	}
}

// TestInlineDriver holds that the driver of a volume that is written into a pod is
// kept as long as the pod.
func TestInlineDriver(t *testing.T) {
	w := newWorld(t)
	ref := podvolumes.Ref{Kind: podvolumes.RefCSIDriver, Name: "scratch.example.com"}
	w.online(pod("a", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: ref.Name}}}}
	}))
	w.set(func() {
		w.objects = map[podvolumes.Ref]runtime.Object{ref: &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: ref.Name}}}
	})
	c := w.agent()
	w.look(c)
	object, err := c.Object(ref)
	if driver, ok := object.(*storagev1.CSIDriver); err != nil || !ok || driver.Name != ref.Name {
		t.Errorf("kept: %v, %v", object, err)
	}
	w.set(func() { w.pods = nil })
	w.look(c)
	if _, err := c.Object(ref); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pod is gone: %v", err)
	}
}

// TestRestoreWaitsForTheRuntime holds that it is known what runs before anything
// is refused.
func TestRestoreWaitsForTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.online(pod("a"))
		w.look(w.agent())
		w.boot()
		listed := time.Now().Add(3 * time.Second)
		c := w.agent(func(c *Config) { c.Listed = func() bool { return time.Now().After(listed) } })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		same(t, "gave up", c.Restore(ctx), []*v1.Pod(nil))
		same(t, "restored", names(c.Restore(t.Context())), "a")
		if time.Now().Before(listed) {
			t.Error("it did not wait")
		}
	})
}

// TestNobodyWaits holds that Run looks soon after a poke, not at each of many, and
// once more at its end.
func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.online(pod("a"))
		c := w.agent()
		stop := runtest.Start(t, c.Run)
		synctest.Wait()
		w.disk.changes()
		time.Sleep(1500 * time.Millisecond)
		for i := range 1000 { // a pod that changes 100 times a second
			w.set(func() {
				w.pods = []*v1.Pod{pod("a", func(p *v1.Pod) { p.Labels = map[string]string{"i": fmt.Sprint(i)} })}
			})
			c.Poke()
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait() // a look may be due just now
		if n := len(w.disk.changes()); n < 5 || n > 15 {
			t.Errorf("%d writes in 10 s", n)
		}
		w.set(func() { w.pods = []*v1.Pod{pod("a", func(p *v1.Pod) { p.Labels = map[string]string{"i": "last"} })} })
		stop()
		same(t, "at the end", w.disk.changes(), []string{"write Pod default/a"})
	})
}

func TestNil(t *testing.T) {
	var c *Checkpointer
	c.Poke()
	if got := c.Faults(); got != nil {
		t.Errorf("faults: %v", got)
	}
}

// TestRandom edits pods and objects, kills the agent at any write, and restarts it
// with and without the API: what is restored is what was last kept, each pod on
// the disk has its objects there, and in the end nothing else is.
func TestRandom(t *testing.T) {
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t)
		c := w.agent()
		for range 30 {
			var pods []*v1.Pod
			for _, name := range []string{"a", "b", "c"} {
				if rnd.IntN(3) > 0 {
					pods = append(pods, pod(name, func(p *v1.Pod) { p.Labels = map[string]string{"v": fmt.Sprint(rnd.IntN(3))} }))
				}
			}
			w.online(pods...)
			w.set(func() {
				w.objects = map[podvolumes.Ref]runtime.Object{configMapRef: configMap(fmt.Sprint(rnd.IntN(3))), secretRef: secret("1")}
			})
			left := rnd.IntN(20)
			real := c.cfg.Folder
			c.cfg.Folder = &dying{folder: real, left: &left}
			c.look()
			c.cfg.Folder = real
			if rnd.IntN(3) == 0 { // a reboot without the API
				w.boot()
				c = w.agent()
				for _, p := range c.Restore(t.Context()) {
					for _, ref := range podvolumes.Refs(p) {
						if _, err := c.Object(ref); err != nil {
							t.Fatalf("seed %d: pod %s: %v", seed, p.Name, err)
						}
					}
					if _, err := c.Token("default", "default", tokenRequest(string(p.UID))); err != nil {
						t.Fatalf("seed %d: pod %s: %v", seed, p.Name, err)
					}
				}
			}
			if rnd.IntN(3) == 0 {
				w.online(pods...)
				w.look(c)
				w.boot()
				c = w.agent()
				same(t, fmt.Sprintf("seed %d", seed), names(c.Restore(t.Context())), names(pods))
			}
		}
		w.online()
		w.set(func() { w.tokens = map[checkpointfile.Key]*authenticationv1.TokenRequest{} })
		w.look(c)
		if len(w.disk.files) != 2 {
			t.Fatalf("seed %d: left behind: %v", seed, w.disk.files)
		}
	}
}

// dying is a folder whose agent is killed after some changes: nothing comes after.
type dying struct {
	folder
	left *int
}

var errKilled = errors.New("killed")

func (d *dying) Write(key checkpointfile.Key, object []byte) error {
	if *d.left--; *d.left < 0 {
		return errKilled
	}
	return d.folder.Write(key, object)
}

func (d *dying) Remove(file string) error {
	if *d.left--; *d.left < 0 {
		return errKilled
	}
	return d.folder.Remove(file)
}
