package volumemanager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// phaseOf returns the phase of a pod, and gone for one that is not known.
func (w *world) phaseOf(uid types.UID) phase {
	w.mu.Lock()
	defer w.mu.Unlock()
	if st := w.mu.pods[uid]; st != nil {
		return st.phase()
	}
	return phaseGone
}

// ask has a pod mounted or unmounted, and waits for nothing.
func (w *world) ask(pod *v1.Pod, want intent) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if want == wanted {
			_ = w.WaitForMount(ctx, pod)
		} else {
			_ = w.Unmount(ctx, pod.UID)
		}
	}()
	synctest.Wait()
	cancel()
	<-done
	synctest.Wait()
}

// What may happen to a pod leads from phase to phase as the drawing above
// podState has it. Each case is a life; each line one event and the phase after it.
func TestPhases(t *testing.T) {
	type life = [][2]string
	tests := []struct {
		name string
		life life
	}{
		{"mounted and unmounted", life{{"mount", "mounted"}, {"mount", "mounted"}, {"unmount", "gone"}}},
		{"the UID again", life{{"mount", "mounted"}, {"unmount", "gone"}, {"mount", "mounted"}, {"unmount", "gone"}}},
		{"a try fails", life{{"fail setUp", "gone"}, {"mount", "mounting"}, {"heal setUp", "mounted"}}},
		{"unmounting fails", life{{"mount", "mounted"}, {"fail tearDown", "mounted"}, {"unmount", "unmounting"}, {"heal tearDown", "gone"}}},
		{"taken back while it mounts", life{{"hang setUp", "gone"}, {"mount", "mounting"}, {"unmount", "unmounting"}, {"end setUp", "gone"}}},
		{"wanted again while it unmounts", life{{"mount", "mounted"}, {"hang tearDown", "mounted"}, {"unmount", "unmounting"}, {"mount", "mounting"}, {"end tearDown", "mounted"}, {"unmount", "gone"}}},
		{"wanted again and taken back while it unmounts", life{{"mount", "mounted"}, {"hang tearDown", "mounted"}, {"unmount", "unmounting"}, {"mount", "mounting"}, {"unmount", "unmounting"}, {"end tearDown", "gone"}}},
		{"another volume while it is mounted", life{{"mount", "mounted"}, {"fail setUp", "mounted"}, {"mount more", "mounting"}, {"heal setUp", "mounted"}}},
		{"found after a restart", life{{"mount", "mounted"}, {"restart", "unsaid"}, {"wait", "unsaid"}, {"mount", "mounted"}}},
		{"found and not wanted", life{{"mount", "mounted"}, {"restart", "unsaid"}, {"unmount", "gone"}}},
		{"found and swept", life{{"mount", "mounted"}, {"restart", "unsaid"}, {"sweep", "gone"}}},
		{"wanted is not swept", life{{"mount", "mounted"}, {"sweep", "mounted"}}},
		{"swept while it unmounts", life{{"mount", "mounted"}, {"fail tearDown", "mounted"}, {"unmount", "unmounting"}, {"sweep", "unmounting"}, {"heal tearDown", "gone"}}},
		{"restarted while it mounts", life{{"fail setUp", "gone"}, {"mount", "mounting"}, {"restart", "gone"}, {"sweep", "gone"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDisk()
			run(t, d, func(t *testing.T, w *world) {
				hung := map[string]chan struct{}{}
				pod, more := podOf("a", emptyDir("v")), podOf("a", emptyDir("v"), emptyDir("more"))
				for i, line := range tt.life {
					event, want := line[0], line[1]
					verb, op, _ := strings.Cut(event, " ")
					switch verb {
					case "mount":
						w.ask(map[string]*v1.Pod{"": pod, "more": more}[op], wanted)
					case "unmount":
						w.ask(pod, unwanted)
					case "sweep":
						if err := w.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
							t.Fatal(err)
						}
					case "fail":
						d.setFail(op+" v", errors.New("no"))
						d.setFail(op+" more", errors.New("no"))
					case "heal":
						d.setFail(op+" v", nil)
						d.setFail(op+" more", nil)
						time.Sleep(2 * time.Minute)
					case "hang":
						hung[op] = make(chan struct{})
						d.hang[op+" v"] = hung[op]
					case "end":
						close(hung[op])
					case "restart":
						w.restart()
					case "wait":
						time.Sleep(time.Hour)
					default:
						t.Fatalf("no such event: %s", event)
					}
					synctest.Wait()
					if got := w.phaseOf("a"); string(got) != want {
						t.Fatalf("line %d: after %q the pod is %s, want %s", i, event, got, want)
					}
				}
				if w.phaseOf("a") == phaseGone && len(d.volumes) != 0 {
					t.Errorf("left: %v", d.volumes)
				}
			})
		})
	}
}

// A try that takes long has given its place to others. What was asked meanwhile
// begins as soon as it ends all the same, and no other call is needed for that.
func TestSlowTryIsFollowedAtOnce(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		hang := make(chan struct{})
		d.hang["setUp v"] = hang
		w.ask(podOf("a", emptyDir("v"), emptyDir("w")), wanted)
		time.Sleep(2 * slow)
		w.ask(podOf("a"), unwanted)
		time.Sleep(slow)
		close(hang)
		synctest.Wait()
		if got := w.phaseOf("a"); got != phaseGone {
			t.Errorf("the pod is %s", got)
		}
		w.wantSteps("setUp a v", "cleanSubPaths a", "tearDown a v") // and w was not begun any more
	})
}

// A volume that may be one pod's only is no other's while anything of it is
// there, also after a restart, and goes over as soon as it is free.
func TestReadWriteOncePod(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		w.api.setModes(v1.ReadWriteOncePod)
		a, b := podOf("a", claim("disk"), claim("same")), podOf("b", claim("disk"))
		w.mount(a)
		err := w.mountWithin(b, time.Minute)
		if err == nil || !strings.Contains(err.Error(), `volume "disk": it uses the ReadWriteOncePod access mode and is already in use by another pod, Pod ns/pod-a`) {
			t.Errorf("err = %v", err)
		}
		w.restart()
		if err := w.mountWithin(b, time.Minute); err == nil {
			t.Error("the volume has two pods after a restart")
		}
		d.steps()
		d.setFail("tearDown pv", errors.New("busy"))
		w.ask(a, unwanted)
		if err := w.mountWithin(b, time.Minute); err == nil {
			t.Error("the volume has a second pod before the first has let go of it")
		}
		d.setFail("tearDown pv", nil)
		began := time.Now()
		if err := w.unmountWithin("a", time.Hour); err != nil {
			t.Fatal(err)
		}
		gone := time.Since(began)
		w.mount(b)
		if took := time.Since(began) - gone; took != 0 {
			t.Errorf("the next pod had it only %v after the first was gone", took)
		}

		// With more modes it is not known which one a pod means.
		w.api.setModes(v1.ReadWriteOncePod, v1.ReadWriteOnce)
		w.mount(podOf("c", claim("disk")))
	})
}

// Two pods that come at once do not both get it.
func TestReadWriteOncePodAtOnce(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		w.api.setModes(v1.ReadWriteOncePod)
		hang := make(chan struct{})
		d.hang["setUp disk"] = hang
		w.ask(podOf("a", claim("disk")), wanted)
		w.ask(podOf("b", claim("disk")), wanted)
		close(hang)
		time.Sleep(time.Hour)
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.volumes) != 1 {
			t.Errorf("both have it: %v", d.volumes)
		}
	})
}

// The node says which volumes it uses before it sets them up, and as long as
// anything of them is there.
func TestInUse(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		const name = "kubernetes.io/x/disk"
		resolved := func() []resolution {
			return []resolution{{id: podvolumes.ID{Kind: podvolumes.Local, Dir: "pv"}, name: "v", volume: &podvolumes.Volume{InUse: name}}}
		}
		var told [][]v1.UniqueVolumeName
		known := false
		w.cfg.InUseChanged = func() { told = append(told, w.inUseLocked()) }
		w.cfg.Reported = func(v1.UniqueVolumeName) bool { return known }

		w.mu.Lock()
		st := w.stateLocked("a")
		st.intent = wanted
		held := resolved()
		w.useLocked(st, held)
		w.mu.Unlock()
		if !errors.Is(held[0].hold, podvolumes.ErrWaiting) {
			t.Errorf("it is not held back: %v", held[0].hold)
		}
		if diff := cmp.Diff(w.InUse(), []v1.UniqueVolumeName{name}); diff != "" {
			t.Errorf("in use before it is mounted (-got +want):\n%s", diff)
		}

		known = true
		w.mu.Lock()
		free := resolved()
		w.useLocked(st, free)
		st.volumes[free[0].id] = noted(free[0].volume)
		w.dropLocked(st)
		w.tellInUseLocked()
		w.mu.Unlock()
		if free[0].hold != nil {
			t.Errorf("held back: %v", free[0].hold)
		}
		if diff := cmp.Diff(w.InUse(), []v1.UniqueVolumeName{name}); diff != "" {
			t.Errorf("in use until it is gone (-got +want):\n%s", diff)
		}
		w.ask(podOf("a"), unwanted)
		if got := w.InUse(); len(got) != 0 {
			t.Errorf("still in use: %v", got)
		}
		if len(told) != 2 || len(told[0]) != 1 || len(told[1]) != 0 {
			t.Errorf("told: %v", told)
		}
	})
}

// A volume grows when its PersistentVolume has, once for each size, after it is
// set up, and again if that failed; the pod goes on meanwhile.
func TestGrow(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		w.api.setSizes("2Gi", "1Gi")
		pod := podOf("a", claim("disk"))
		w.mount(pod)
		w.wantSteps("setUp a disk", "grow a disk 2147483648")
		w.api.setSizes("3Gi", "1Gi")
		d.setFail("grow disk", errors.New("no tool"))
		w.Poke("a")
		synctest.Wait()
		w.wantSteps("grow a disk 3221225472")
		w.mount(pod) // at once: it has its volume
		if got := w.Faults(); len(got) != 1 || got[0].Message != "no tool" {
			t.Errorf("faults: %v", got)
		}
		d.setFail("grow disk", nil)
		time.Sleep(time.Minute)
		w.wantSteps("grow a disk 3221225472")
		w.Poke("a") // the claim does not show it yet
		synctest.Wait()
		w.api.setSizes("3Gi", "3Gi")
		w.Poke("a")
		synctest.Wait()
		w.wantSteps()
	})
}

// What is under way for long is told, and its pod says so; however often it is
// asked for, one try is made. A part of a volume counts as the volume does.
func TestLongOperations(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		mount, part := make(chan struct{}), make(chan struct{})
		d.hang["setUp v"], d.hang["bindSubPath part"] = mount, part
		pod := podOf("a", emptyDir("v"))
		for range 5 {
			err := w.mountWithin(pod, 3*time.Second)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("err = %v", err)
			}
		}
		const long = `set up volume "v": it takes long: the disk or the server behind it may not answer`
		if err := w.mountWithin(pod, time.Second); err == nil || err.Error() != long {
			t.Errorf("err = %v", err)
		}
		if got := w.Faults(); len(got) != 1 || got[0].Object != "Pod ns/pod-a" || got[0].Message != long || time.Since(got[0].Since) != 16*time.Second {
			t.Errorf("faults: %+v", got)
		}
		w.wantSteps("setUp a v")
		close(mount)
		w.mount(pod)
		if got := w.Faults(); len(got) != 0 {
			t.Errorf("faults: %+v", got)
		}

		spec := podvolumes.SubPath{PodUID: "a", Container: "app", Volume: "v", Path: "part"}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 { // the second time ctx has ended
			if _, err := w.SubPath(ctx, spec); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `subPath "part" of volume "v": it takes long`) {
				t.Errorf("err = %v", err)
			}
		}
		if got := w.Faults(); len(got) != 1 || !strings.HasPrefix(got[0].Message, `subPath "part" of volume "v"`) {
			t.Errorf("faults: %+v", got)
		}
		w.ask(pod, unwanted)
		w.wantSteps("bindSubPath a part") // once, and nothing is unmounted below it
		if _, err := w.SubPath(t.Context(), spec); err == nil {
			t.Error("a part for a pod that goes")
		}
		close(part)
		synctest.Wait()
		if got := w.phaseOf("a"); got != phaseGone || len(d.parts) != 0 {
			t.Errorf("the pod is %s, its parts %v", got, d.parts)
		}
	})
}

// A manager that stops says what it leaves under way, and undoes nothing.
func TestStopsWhileSomethingHangs(t *testing.T) {
	d := newDisk()
	run(t, d, func(t *testing.T, w *world) {
		hang := make(chan struct{})
		d.hang["setUp v"] = hang
		w.mount(podOf("b", emptyDir("w")))
		w.ask(podOf("a", emptyDir("v"), emptyDir("more")), wanted)
		d.steps()
		err := w.stop()
		if err == nil || !strings.Contains(err.Error(), `Pod ns/pod-a: set up volume "v"`) {
			t.Errorf("err = %v", err)
		}
		close(hang)
		synctest.Wait()
		w.wantSteps() // neither the rest nor the way back
		if len(d.volumes) != 2 {
			t.Errorf("have %v", d.volumes)
		}
	})
}
