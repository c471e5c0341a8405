package podloop

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpoint"
	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointer"
	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pleg"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

var errAway = errors.New("connection refused")

// nothingHeld is what pods without volumes and environments hold.
type nothingHeld struct{}

func (nothingHeld) Seen() map[podvolumes.Ref]runtime.Object { return nil }

func (nothingHeld) Tokens() map[checkpointfile.Key]*authenticationv1.TokenRequest { return nil }

func (nothingHeld) SeenServices(string) ([]*v1.Service, int64, bool) { return nil, 0, false }

// keeper keeps the API's pods of an agent.
func (w *world) keeper(a *agent, cache *observed.Cache, generator *pleg.Generator) *checkpointer.Checkpointer {
	return checkpointer.New(checkpointer.Config{
		Folder: checkpoint.New(checkpoint.Config{Dir: w.dir + "/checkpoint"}), Objects: nothingHeld{},
		Pods: func() ([]*v1.Pod, bool) { return a.loop.Admitted() },
		Runs: func(uid types.UID) bool {
			status, err := cache.Get(uid)
			return err == nil && status.Running()
		},
		Listed: func() bool { return generator.Healthy() == nil },
		Node:   func() *v1.Node { return nil },
		Answered: func() time.Time {
			if w.away.Load() {
				return time.Time{}
			}
			return time.Now()
		},
		Log: slog.New(slog.NewTextHandler(w.t.Output(), nil)),
	})
}

// reboot ends all that runs, as a power cut does: the runtime finds its containers
// dead when it comes up again.
func (w *world) reboot(names ...string) {
	w.t.Helper()
	for _, name := range names {
		for _, id := range w.runtime.Sandboxes("default", name) {
			if err := w.runtime.KillSandbox(id); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// TestDiesAnywhereWithoutTheAPI reboots a node whose API is away, and kills its
// agent again at any moment of the start, with and without another reboot. Once it
// is left alone each pod runs once; when the API is back, the same containers go
// on, and what was deleted meanwhile goes.
func TestDiesAnywhereWithoutTheAPI(t *testing.T) {
	for _, again := range []bool{false, true} {
		for ms := 0; ms < 200; ms += 23 {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(w *world) { w.keeps = true })
				w.files()
				w.create(pod("a", "db"))
				w.create(pod("b", "gone"))
				w.create(pod("c", "ends"))
				settle()

				w.stop()
				w.reboot("db", "gone", "ends")
				w.delete("ends")
				if err := w.api.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "default", "gone"); err != nil {
					t.Fatal(err)
				}
				w.away.Store(true)
				for _, op := range []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox"} {
					w.runtime.Delay(op, 20*time.Millisecond)
				}
				w.start()
				w.files()
				time.Sleep(time.Duration(ms) * time.Millisecond)
				w.stop()
				if again {
					w.reboot("db", "gone", "ends")
				}
				w.start()
				w.files()
				settle()
				for _, name := range []string{"db", "gone", "ends"} {
					if n := w.running(name); n != 1 {
						t.Errorf("died after %d ms, again %v: of %s there run %d containers", ms, again, name, n)
					}
				}
				before := w.container("db")

				w.away.Store(false)
				time.Sleep(30 * time.Second)
				settle()
				if after := w.container("db"); after != before || w.running("db") != 1 {
					t.Errorf("died after %d ms, again %v: the container is %s, before the API was back %s", ms, again, after, before)
				}
				if got := w.get("db"); got.UID != "a" || got.Status.Phase != v1.PodRunning {
					t.Errorf("died after %d ms, again %v: the API has %s", ms, again, w.state("db"))
				}
				w.nothingLeft("gone", "ends")
			})
		}
	}
}
