package podsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: types.UID("uid-" + name),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "somebody"}},
		},
		Spec: corev1.PodSpec{NodeName: "n1"},
	}
}

// say writes a delivery as text: the kind, the pods' names, and who is gone.
func say(d desired.Delivery) string {
	words := []string{[]string{"full", "delta", "restored"}[d.Kind]}
	for _, p := range d.Pods {
		words = append(words, p.Name)
	}
	for _, uid := range d.Gone {
		words = append(words, "-"+string(uid))
	}
	return strings.Join(words, " ")
}

// An apiRun is a source that runs.
type apiRun struct {
	*API
	t    *testing.T
	said chan desired.Delivery
}

func runAPI(t *testing.T, s *apiServer) *apiRun {
	t.Helper()
	r := &apiRun{t: t, said: make(chan desired.Delivery)}
	r.API = NewAPI(APIConfig{Node: "n1", Client: s.client, Log: log(t), Deliver: func(ctx context.Context, d desired.Delivery) {
		select {
		case r.said <- d:
		case <-ctx.Done():
		}
	}})
	runtest.Start(t, r.Run)
	return r
}

// want takes the next delivery, which says this.
func (r *apiRun) want(want string) desired.Delivery {
	r.t.Helper()
	select {
	case d := <-r.said:
		if got := say(d); got != want {
			r.t.Fatalf("got %q, want %q", got, want)
		}
		return d
	case <-r.t.Context().Done():
		r.t.Fatalf("no delivery of %q", want)
	}
	return desired.Delivery{}
}

// wantDeltas takes deltas until they have said all this, in one or in several.
func (r *apiRun) wantDeltas(words ...string) {
	r.t.Helper()
	left := map[string]bool{}
	for _, w := range words {
		left[w] = true
	}
	for len(left) > 0 {
		var text string
		select {
		case d := <-r.said:
			text = say(d)
		case <-r.t.Context().Done():
			r.t.Fatalf("no delta of %v", left)
		}
		kind, said, _ := strings.Cut(text, " ")
		for word := range strings.FieldsSeq(said) {
			if kind != "delta" || !left[word] {
				r.t.Fatalf("got %q, want deltas of %v", text, left)
			}
			delete(left, word)
		}
	}
}

// waits reports whether a pod waits to be delivered.
func (r *apiRun) waits(uid types.UID) bool {
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	return r.pods.pods[uid] != nil
}

// until waits until ok reports true; the test's own limit bounds it.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-t.Context().Done():
			t.Fatal("the test has ended")
		case <-time.After(time.Millisecond):
		}
	}
}

// both runs a test against a server that knows streaming lists and an older one.
func both(t *testing.T, test func(t *testing.T, s *apiServer)) {
	for name, streams := range map[string]bool{"streaming list": true, "plain list": false} {
		t.Run(name, func(t *testing.T) { test(t, newAPIServer(t, streams)) })
	}
}

// TestAPI: the first answer is the full set, what changes after it a delta.
func TestAPI(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.put(pod("b"))
		s.put(pod("a"))
		r := runAPI(t, s)
		d := r.want("full a b")
		if d.Source != "api" || len(d.Pods[0].ManagedFields) > 0 {
			t.Errorf("of source %q: %+v", d.Source, d.Pods[0].ObjectMeta)
		}
		if got := r.State(); got.Pods != 2 || got.LastGood.IsZero() || got.Failed != "" || got.Restored {
			t.Errorf("state: %+v", got)
		}
		s.put(pod("c"))
		if d := r.want("delta c"); len(d.Pods[0].ManagedFields) > 0 {
			t.Error("managed fields are kept")
		}
		s.put(pod("a"))
		r.want("delta a")
		s.remove("uid-b")
		r.want("delta -uid-b")
		if got := r.State().Pods; got != 2 {
			t.Errorf("%d pods, want 2", got)
		}
		want := []string{"stream"}
		if !s.streams {
			want = []string{"stream", "list", "watch 12"}
		}
		if diff := cmp.Diff(s.questions(), want); diff != "" {
			t.Errorf("questions (-got +want):\n%s", diff)
		}
	})
}

// TestAPISlowReceiver: while the receiver is busy changes become one delivery,
// and a pod made anew under its name is another.
func TestAPISlowReceiver(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.put(pod("a"))
		s.put(pod("b"))
		r := runAPI(t, s)
		r.want("full a b")
		s.put(pod("busy"))
		// Taken, and not received:
		until(t, func() bool { return r.State().Pods == 3 && !r.waits("uid-busy") })
		again := pod("a")
		again.UID = "uid-a2"
		s.remove("uid-a")
		s.put(again)
		s.put(pod("short"))
		s.remove("uid-short")
		s.put(pod("b"))
		s.remove("uid-b")
		s.put(pod("last"))
		until(t, func() bool { return r.waits("uid-last") })
		r.want("delta busy")
		r.want("delta a last -uid-a -uid-b")
	})
}

// TestAPIResumes: after a connection that broke, and a server that was away, the
// watch goes on where it was: nobody asks for the whole set.
func TestAPIResumes(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.put(pod("a"))
		r := runAPI(t, s)
		r.want("full a")
		asked := s.sets()
		s.put(pod("b"))
		r.want("delta b")
		before := r.State().LastGood
		s.bookmark()
		until(t, func() bool { return r.State().LastGood.After(before) })
		began := time.Now()
		s.setDown(true)
		s.put(pod("c"))
		s.remove("uid-a")
		until(t, func() bool { return len(r.Faults()) > 0 })
		f := r.Faults()[0]
		if f.Object != "Pods" || f.Since.Before(began) || f.Since.After(time.Now()) || !strings.Contains(f.Message, "what ran stays") {
			t.Errorf("fault: %+v", f)
		}
		if got := r.State(); got.Failed != f.Message || !got.Since.Equal(f.Since) || got.Pods != 2 {
			t.Errorf("state: %+v", got)
		}
		s.setDown(false)
		r.wantDeltas("c", "-uid-a")
		if got := r.Faults(); len(got) > 0 {
			t.Errorf("faults after the outage: %+v", got)
		}
		if got := s.sets(); got != asked {
			t.Errorf("the whole set was asked for %d times more: %q", got-asked, s.questions())
		}
		if got, want := s.questions()[len(s.questions())-1], "watch 22"; got != want {
			t.Errorf("last question: %q, want %q: the bookmark's", got, want)
		}
	})
}

// TestAPIForgotten: a server that has forgotten what happened is asked for the
// whole set once.
func TestAPIForgotten(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.put(pod("a"))
		s.put(pod("b"))
		r := runAPI(t, s)
		r.want("full a b")
		s.put(pod("b"))
		r.want("delta b") // it watches
		before := len(s.questions())
		s.setDown(true)
		s.remove("uid-a")
		s.put(pod("c"))
		s.forget()
		s.setDown(false)
		r.want("full b c")
		s.put(pod("d"))
		r.want("delta d")
		lists := slices.DeleteFunc(s.questions()[before:], func(q string) bool { return strings.HasPrefix(q, "watch") })
		want := []string{"stream"}
		if !s.streams {
			want = []string{"stream", "list"} // of which the first is refused
		}
		if diff := cmp.Diff(lists, want); diff != "" {
			t.Errorf("whole sets (-got +want):\n%s", diff)
		}
	})
}

// TestAPIUnreadableEvent: a watch that always breaks at the same event does not
// keep the source from going on.
func TestAPIUnreadableEvent(t *testing.T) {
	s := newAPIServer(t, false)
	s.put(pod("a"))
	r := runAPI(t, s)
	r.want("full a")
	s.setWatches("unreadable")
	r.want("full a")
	until(t, func() bool { return len(r.Faults()) > 0 })
	s.setWatches("")
	s.put(pod("b"))
	// The last of them may have been on its way.
	until(t, func() bool { return slices.Contains([]string{"full a b", "delta b"}, say(<-r.said)) })
}

// TestAPIShortWatch: a server that ends each watch at once is not well, and is not
// asked for the whole set.
func TestAPIShortWatch(t *testing.T) {
	s := newAPIServer(t, false)
	s.put(pod("a"))
	r := runAPI(t, s)
	r.want("full a")
	s.setWatches("short")
	until(t, func() bool { return len(r.Faults()) > 0 })
	s.put(pod("b"))
	s.setWatches("")
	r.want("delta b")
	if got := s.sets(); got != 2 || len(r.Faults()) > 0 {
		t.Errorf("questions %q, faults %v", s.questions(), r.Faults())
	}
}

// away returns a client whose server does not answer lists until it is told to.
func away(names ...string) (client *fake.Clientset, down *atomic.Bool) {
	var pods []runtime.Object
	for _, name := range names {
		pods = append(pods, pod(name))
	}
	client, down = fake.NewClientset(pods...), new(atomic.Bool)
	down.Store(true)
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return down.Load(), nil, errors.New("away")
	})
	return client, down
}

func TestAPIFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, down := away("a")
		delivered := 0
		api := NewAPI(APIConfig{Node: "n1", Client: client, Log: log(t), Deliver: func(context.Context, desired.Delivery) { delivered++ }})
		began := time.Now()
		runtest.Start(t, api.Run)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := api.Faults(); len(got) != 1 || !strings.Contains(got[0].Message, "away") || !got[0].Since.Equal(began) {
			t.Errorf("faults: %+v", got)
		}
		if got := len(client.Actions()); got < 8 || got > 20 {
			t.Errorf("%d questions in a minute", got)
		}
		down.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := api.Faults(); len(got) != 0 || delivered != 1 {
			t.Errorf("%d deliveries, faults: %+v", delivered, got)
		}
	})
}

// TestAPIRestore: what an earlier run remembers is asked for once, and only where
// the server does not answer in time.
func TestAPIRestore(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	for _, test := range []struct {
		name       string
		ready      chan struct{} // nil: never closed
		down       bool
		remembered []*corev1.Pod
		asked      bool
		after      time.Duration // when it is asked
		want       []string
	}{
		{"the server answers", closed, false, []*corev1.Pod{pod("old")}, false, 0, []string{"full a"}},
		{"it refuses", closed, true, []*corev1.Pod{pod("old")}, true, 0, []string{"restored old", "full a"}},
		{"the node is not registered", nil, true, []*corev1.Pod{pod("old")}, true, 5 * time.Second, []string{"restored old", "full a"}},
		{"nothing is remembered", closed, true, nil, true, 0, []string{"full a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, down := away("a")
				down.Store(test.down)
				ready := make(chan struct{})
				if test.ready != nil {
					close(ready)
				}
				var asked []time.Duration
				var said []string
				began := time.Now()
				api := NewAPI(APIConfig{
					Node: "n1", Client: client, Ready: ready, Log: log(t),
					Restore: func(context.Context) []*corev1.Pod {
						asked = append(asked, time.Since(began))
						return test.remembered
					},
					Deliver: func(_ context.Context, d desired.Delivery) { said = append(said, say(d)) },
				})
				runtest.Start(t, api.Run)
				time.Sleep(time.Minute)
				synctest.Wait()
				if test.asked != (len(asked) == 1) || test.asked && asked[0] != test.after {
					t.Errorf("asked at %v", asked)
				}
				if restored := len(test.remembered) > 0 && test.asked; api.State().Restored != restored {
					t.Errorf("state: %+v, want restored=%v", api.State(), restored)
				}
				down.Store(false)
				if test.ready == nil {
					close(ready)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if diff := cmp.Diff(said, test.want); diff != "" {
					t.Errorf("deliveries (-got +want):\n%s", diff)
				}
				if got := api.State(); got.Restored || got.Pods != 1 || len(asked) > 1 {
					t.Errorf("at the end: %+v, asked %d times", got, len(asked))
				}
			})
		})
	}
}

// A node without any pod says so once: the source was seen.
func TestAPIEmpty(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) { runAPI(t, s).want("full") })
}

func TestAPIStopsBeforeReady(t *testing.T) {
	runtest.Start(t, NewAPI(APIConfig{
		Node: "n1", Client: fake.NewClientset(), Ready: make(chan struct{}), Log: log(t),
		Deliver: func(_ context.Context, d desired.Delivery) { t.Error(fmt.Sprint("delivered ", say(d))) },
	}).Run)
}
