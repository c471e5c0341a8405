package podloop

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
	"github.com/holdfast-dev/holdfast/internal/kubelet/startorder"
)

// after makes a static pod come after others.
func after(names string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		static(p)
		p.Annotations[startorder.Annotation] = names
	}
}

func container(name, image string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Name, p.Spec.Containers[0].Image = name, image }
}

// faults are what the loop says of pods, in one text.
func (w *world) faults() string {
	var all []string
	for _, f := range w.agent.loop.Faults() {
		all = append(all, f.Object+" "+f.Message)
	}
	return strings.Join(all, "\n")
}

func TestStartOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		db, web := pod("a", "db-n1", static, container("c", "late")), pod("b", "web-n1", after("db"))
		w.files(web, db)
		settle()
		if n := w.running("web-n1"); n != 0 {
			t.Errorf("web runs before db")
		}
		if got := w.faults(); !strings.Contains(got, "Pod default/web-n1 waits for default/db, which is not ready") {
			t.Errorf("faults: %s", got)
		}
		w.runtime.AddImage("late")
		time.Sleep(time.Minute) // beyond the back-off of the pull
		synctest.Wait()
		if db, web := w.state("db-n1"), w.state("web-n1"); db != "Running ready restarts=0" || web != db {
			t.Errorf("db = %s, web = %s", db, web)
		}
		if got := w.faults(); got != "" {
			t.Errorf("faults: %s", got)
		}
		was := w.container("web-n1")

		// What runs stays, whatever becomes of the other, and over a restart.
		w.files(web)
		settle()
		w.stop()
		w.start()
		w.files(web)
		settle()
		w.nothingLeft("db-n1")
		if got := w.container("web-n1"); got != was || w.running("web-n1") != 1 {
			t.Errorf("web's container is %s, want %s", got, was)
		}
		// So does one that is edited while the other is not there.
		w.files(pod("c", "web-n1", after("db,no-such")))
		settle()
		if w.running("web-n1") != 1 || w.container("web-n1") == was {
			t.Errorf("web does not run anew")
		}
	})
}

func TestStartOrderUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		web := pod("b", "web-n1", after("dbb"))
		w.files(web, pod("x", "x-n1", after("y")), pod("y", "y-n1", after("x")))
		w.create(pod("d", "db"))
		settle()
		for _, want := range []string{
			"Pod default/web-n1 waits for default/dbb, and no manifest has a pod of that name",
			"Pod default/x-n1 waits for itself: default/x after default/y after default/x",
			"Pod default/y-n1 waits for itself: default/y after default/x after default/y",
		} {
			if got := w.faults(); !strings.Contains(got, want) {
				t.Errorf("faults: got\n%s\nwant %s", got, want)
			}
		}
		if n := w.running("web-n1") + w.running("x-n1") + w.running("y-n1"); n != 0 {
			t.Errorf("%d containers run", n)
		}
		w.files(web, pod("x", "x-n1", after("y")), pod("z", "y-n1", static), pod("e", "dbb-n1", static))
		settle()
		if n := w.running("web-n1") + w.running("x-n1") + w.running("y-n1"); n != 3 {
			t.Errorf("%d of 3 containers run: %s", n, w.faults())
		}
		w.files()
		settle()
		w.nothingLeft("web-n1", "x-n1", "y-n1", "dbb-n1")
	})
}

func TestStopOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.runtime.SetProgram("slow", crifake.Program{IgnoresTerm: true}) // it takes all of its grace period
		w.files(pod("a", "db-n1", static), pod("b", "web-n1", after("db"), container("slow", "demo")))
		settle()
		if n := w.running("web-n1") + w.running("db-n1"); n != 2 {
			t.Fatalf("%d of 2 containers run", n)
		}
		w.files()
		settle()
		if web, db := w.running("web-n1"), w.running("db-n1"); web != 1 || db != 1 {
			t.Errorf("while web ends, %d containers of it and %d of db run, want 1 and 1", web, db)
		}
		if !w.exists("db-n1") {
			t.Error("db is not to be seen in the API while it runs")
		}
		settle()
		settle()
		w.nothingLeft("web-n1", "db-n1")
		if left := len(w.agent.workers.Snapshot()); left != 0 {
			t.Errorf("%d workers are left", left)
		}

		// One that goes alone does not wait for the other, and comes back.
		both := []*v1.Pod{pod("a", "db-n1", static), pod("b", "web-n1", after("db"), container("slow", "demo"))}
		w.files(both...)
		settle()
		w.files(both[1])
		settle()
		if web, db := w.running("web-n1"), w.running("db-n1"); web != 1 || db != 0 {
			t.Errorf("%d containers of web and %d of db run, want 1 and 0", web, db)
		}
		// Put back while it waits for its end.
		w.files(both...)
		settle()
		w.files()
		time.Sleep(time.Second)
		w.files(both...)
		time.Sleep(time.Minute)
		synctest.Wait()
		if web, db := w.running("web-n1"), w.running("db-n1"); web != 1 || db != 1 {
			t.Errorf("%d containers of web and %d of db run, want 1 and 1: %s", web, db, w.faults())
		}
	})
}
