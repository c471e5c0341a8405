package syncloop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// TestStaticPodsWhileTheAPIIsSilent holds that pods of a source that answers come
// and go though another one never answered, and that nothing else goes then: the
// runtime's pods that no source has named, folders, statuses and mirrors.
func TestStaticPodsWhileTheAPIIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, has("s", "web", observed.Running), has("a", "db", observed.Running), has("x", "old", observed.Exited))
		w.stored["a"] = v1.PodStatus{}
		w.Deliver(t.Context(), "file", []*v1.Pod{static("s", "web")})
		w.want("create s", "mirrors [static s] false")
		w.Deliver(t.Context(), "file", nil)
		w.want("remove s", "mirrors [ending s] false")
		w.end("s")
		time.Sleep(time.Hour)
		w.want("mirrors [] false")
		w.Deliver(t.Context(), "file", []*v1.Pod{static("s", "web")}) // the same again
		w.want("create s", "mirrors [static s] false")
		w.Deliver(t.Context(), "api", []*v1.Pod{pod("a", "db")})
		time.Sleep(2 * time.Second)
		w.want("observe a", "create a", "orphan x", "mirrors [static s] true", "sweep")
	})
}

// TestEditEndsTheOldPodFirst holds that the end of a static pod is asked for
// before its successor is created, whatever the API does. The workers keep the
// turns of a name.
func TestEditEndsTheOldPodFirst(t *testing.T) {
	for _, tt := range []struct {
		name string
		api  *desired.Delivery
		kind desired.Kind // of the edit
		seen bool
	}{
		{"the API is silent", nil, desired.Full, false},
		{"the API is silent, and the edit is a delta", nil, desired.Delta, false},
		{"the API has not answered, and its pods were restored", &desired.Delivery{Kind: desired.Restored}, desired.Full, false},
		{"the API has answered", &desired.Delivery{}, desired.Full, true},
		{"the API still has the old mirror", &desired.Delivery{Pods: []*v1.Pod{mirror("m", "web", "old")}}, desired.Full, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if tt.api != nil {
					tt.api.Source = "api"
					w.Loop.Deliver(t.Context(), *tt.api)
				}
				w.Deliver(t.Context(), "file", []*v1.Pod{static("old", "web"), static("db", "db")})
				synctest.Wait()
				w.mu.Lock()
				w.log = nil
				w.mu.Unlock()
				edit := desired.Delivery{Source: "file", Kind: tt.kind, Pods: []*v1.Pod{static("new", "web")}}
				if tt.kind == desired.Full {
					edit.Pods = append(edit.Pods, static("db", "db"))
				} else {
					edit.Gone = []types.UID{"old"}
				}
				w.Loop.Deliver(t.Context(), edit)
				mirrors := ""
				if tt.api != nil && len(tt.api.Pods) > 0 {
					mirrors = "mirror m, "
				}
				w.want("remove old", "create new", fmt.Sprintf("mirrors [ending old, %sstatic db, static new] %v", mirrors, tt.seen))
			})
		})
	}
}

// TestRestored holds that restored pods start though nobody would admit them now,
// that their source counts as silent meanwhile, and that its first answer changes
// only what differs.
func TestRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, has("x", "old", observed.Exited))
		w.refused = map[string]string{"db": "TooBig", "job": "TooBig", "new": "TooBig"}
		w.Deliver(t.Context(), "file", nil)
		w.Loop.Deliver(t.Context(), desired.Delivery{Source: "api", Kind: desired.Restored, Pods: []*v1.Pod{pod("a", "db"), pod("b", "job")}})
		time.Sleep(time.Minute)
		w.want("observe a", "create a", "observe b", "create b", "mirrors [] false")
		select {
		case <-w.Synced():
			t.Error("a source that was restored counts as seen")
		default:
		}
		told := pod("a", "db")
		told.ResourceVersion, told.Status.Phase = "2", v1.PodRunning
		w.Deliver(t.Context(), "api", []*v1.Pod{told, pod("n", "new")})
		w.want("remove b", "observe n", "reject n TooBig", "kill n", "observe a", "mirrors [] true")
		if diff := cmp.Diff(w.asked, []types.UID{"n"}); diff != "" {
			t.Errorf("asked (-got +want):\n%s", diff)
		}
		time.Sleep(2 * time.Second)
		w.want("orphan x", "mirrors [] true", "sweep")
	})
}

// TestDeltaIsNoAnswer holds that only a full set says what a source does not
// have.
func TestDeltaIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, has("x", "old", observed.Exited))
		w.Deliver(t.Context(), "file", nil)
		w.Loop.Deliver(t.Context(), desired.Delivery{Source: "api", Kind: desired.Delta, Pods: []*v1.Pod{pod("a", "db")}})
		time.Sleep(time.Minute)
		w.want("observe a", "create a", "mirrors [] false")
		w.Deliver(t.Context(), "api", []*v1.Pod{pod("a", "db")})
		time.Sleep(2 * time.Second)
		w.want("orphan x", "mirrors [] true", "sweep")
		w.Loop.Deliver(t.Context(), desired.Delivery{Source: "api", Kind: desired.Delta, Gone: []types.UID{"a"}})
		w.want("remove a")
	})
}

// TestSourcesInParallel holds that three sources may deliver at once, and that
// what one of them says is taken in its order.
func TestSourcesInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		deliver := func(source string) {
			for i := range 200 {
				d := desired.Delivery{Source: source, Pods: []*v1.Pod{static(fmt.Sprint(source, i), source)}}
				if i > 0 && i%2 == 0 {
					d.Kind, d.Gone = desired.Delta, []types.UID{types.UID(fmt.Sprint(source, i-1))}
				}
				if source == "api" {
					d.Pods[0].Annotations = nil
					d.Pods[0].ResourceVersion = fmt.Sprint(i)
				}
				w.Loop.Deliver(t.Context(), d)
				w.Pods()
			}
		}
		var wg sync.WaitGroup
		for _, source := range []string{"file", "http", "api"} {
			wg.Go(func() { deliver(source) })
		}
		wg.Wait()
		synctest.Wait()
		var names []string
		for _, p := range w.Pods() {
			names = append(names, string(p.UID))
		}
		if diff := cmp.Diff(names, []string{"api199", "file199", "http199"}); diff != "" {
			t.Errorf("in the end (-got +want):\n%s", diff)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		next := map[string]int{}
		for _, line := range w.log {
			for source, n := range next {
				if line == fmt.Sprintf("create %s%d", source, n) {
					next[source]++
				}
			}
			if source, ok := strings.CutSuffix(line, "0"); ok && slices.Contains([]string{"create file", "create http", "create api"}, source) {
				next[strings.TrimPrefix(source, "create ")] = 1
			}
		}
		if diff := cmp.Diff(next, map[string]int{"file": 200, "http": 200, "api": 200}); diff != "" {
			t.Errorf("created one after the other (-got +want):\n%s", diff)
		}
		select {
		case <-w.Synced():
		default:
			t.Error("not all sources count as seen")
		}
	})
}

// TestPublished holds that a list that is changed is the list that is made anew,
// and that readers of the old one see nothing of it.
func TestPublished(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		l := New(Config{})
		for range 40 {
			l.keep(pod(fmt.Sprint(rnd.IntN(100)), fmt.Sprint(rnd.IntN(20))))
		}
		var list []*v1.Pod
		for range 30 {
			before := slices.Clone(list)
			next := published(list, l.pods, l.touched)
			l.touched = nil
			if !slices.Equal(list, before) {
				t.Fatalf("seed %d: the old list was changed", seed)
			}
			list = next
			want := published(nil, l.pods, []*v1.Pod{{}})
			if !slices.Equal(list, want) {
				t.Fatalf("seed %d: got %v, want %v", seed, list, want)
			}
			for range rnd.IntN(4) {
				uid := types.UID(fmt.Sprint(rnd.IntN(100)))
				switch p, what := l.pods[uid], rnd.IntN(3); {
				case p == nil:
					l.keep(pod(string(uid), fmt.Sprint(rnd.IntN(20))))
				case what == 0:
					l.drop(p)
				case what == 1: // it comes back under another name
					l.drop(p)
					l.keep(pod(string(uid), fmt.Sprint(rnd.IntN(20))))
				default:
					l.keep(p.DeepCopy())
				}
			}
		}
	}
}

// TestRestartKeepsWhatRuns holds that a pod of a URL that runs is not ended in
// favour of a file's pod of its name because the folder answers first.
func TestRestartKeepsWhatRuns(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  []*v1.Pod // of the URL
		want []string
	}{
		{"the URL still has it", []*v1.Pod{static("h", "web")}, []string{"create h", "mirrors [static h] false"}},
		{"the URL has it no more", nil, []string{"orphan h", "create s", "mirrors [static s] false"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := has("h", "web", observed.Running)
				runs.Source, runs.Sandboxes = "http", []observed.Sandbox{{State: observed.Running}}
				w := newWorldOf(t, desired.New("file", "http", "api"), runs)
				w.Deliver(t.Context(), "file", []*v1.Pod{static("s", "web")})
				w.want() // it waits
				w.Deliver(t.Context(), "http", tt.set)
				w.want(tt.want...)
			})
		})
	}
}
