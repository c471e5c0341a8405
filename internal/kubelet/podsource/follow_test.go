package podsource

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

// TestAPIModel: whatever happens to pods, connections and the server's memory,
// and however slow the receiver is, it ends up with what the server has.
func TestAPIModel(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		receiver, bad := model{}, make(chan error, 1)
		state := make(chan model)
		api := NewAPI(APIConfig{Node: "n1", Client: s.client, Log: log(t), Deliver: func(ctx context.Context, d desired.Delivery) {
			if err := receiver.take(d); err != nil {
				select {
				case bad <- fmt.Errorf("%s: %w", say(d), err):
				default:
				}
			}
			for { // a slow receiver shows what it has
				select {
				case state <- maps.Clone(receiver):
					return
				case <-time.After(time.Duration(len(d.Pods)) * time.Millisecond):
					return
				case <-ctx.Done():
					return
				}
			}
		}})
		runtest.Start(t, api.Run)
		there := map[string]types.UID{}
		for i := range 300 {
			name := string(rune('a' + random.IntN(8)))
			uid, exists := there[name]
			switch what := random.IntN(100); {
			case what < 2:
				s.setDown(true)
			case what < 4:
				s.setDown(false)
			case what < 6:
				s.forget()
			case what < 8:
				s.bookmark()
			case exists && what < 40:
				s.remove(uid)
				delete(there, name)
			default:
				if !exists {
					uid = types.UID(fmt.Sprintf("%s-%d", name, i))
					there[name] = uid
				}
				p := pod(name)
				p.UID = uid
				s.put(p)
			}
			if random.IntN(10) == 0 {
				<-time.After(time.Millisecond)
			}
		}
		s.setDown(false)
		last := pod("z")
		last.UID = "z-last"
		s.put(last) // so that there is something to hear
		want := s.versions()
		until(t, func() bool {
			select {
			case err := <-bad:
				t.Fatal(err)
			case got := <-state:
				return maps.Equal(got, want)
			case <-time.After(2 * time.Second):
				s.put(last)
				want = s.versions()
			}
			return false
		})
		if diff := cmp.Diff(api.State().Pods, len(want)); diff != "" {
			t.Errorf("pods counted (-got +want):\n%s", diff)
		}
	})
}

func (s *apiServer) versions() model {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := model{}
	for _, p := range s.pods {
		m[p.UID] = p.ResourceVersion
	}
	return m
}

// A hung server takes questions and answers none; lists it may answer.
type hung struct {
	typedcorev1.PodInterface
	list  *corev1.PodList // nil: not even that
	asked []string
}

// List answers if there is a list.
func (h *hung) List(ctx context.Context, _ metav1.ListOptions) (*corev1.PodList, error) {
	h.asked = append(h.asked, "list")
	if h.list != nil {
		return h.list, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// Watch says nothing.
func (h *hung) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	h.asked = append(h.asked, strings.TrimSpace("watch "+opts.ResourceVersion))
	return watch.NewFake(), nil
}

// TestHungServer: a server that never ends a streaming list is asked for a plain
// one, and one that answers nothing is a fault after a while.
func TestHungServer(t *testing.T) {
	for name, test := range map[string]struct {
		list  *corev1.PodList
		asked []string // of the first five minutes
		pods  int
		fault string
	}{
		"no end of a stream": {&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Pod{*pod("a")}}, []string{"watch", "list", "watch 7"}, 1, ""},
		"no answer":          {nil, []string{"watch", "list", "list", "list", "list"}, 0, "no full answer within 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hung{list: test.list}
				delivered := 0
				client, _ := away()
				api := NewAPI(APIConfig{Node: "n1", Client: client, Log: log(t), Deliver: func(context.Context, desired.Delivery) { delivered++ }})
				api.client.client, api.client.streams = h, true
				stop := runtest.Start(t, api.Run)
				time.Sleep(5*time.Minute - time.Second)
				synctest.Wait()
				faults := api.Faults()
				stop()
				if got := h.asked; !slices.Equal(got, test.asked) {
					t.Errorf("asked %q, want %q", got, test.asked)
				}
				if delivered != test.pods || api.State().Pods != test.pods {
					t.Errorf("%d deliveries of %d pods, want %d", delivered, api.State().Pods, test.pods)
				}
				if (len(faults) > 0) != (test.fault != "") || len(faults) > 0 && !strings.Contains(faults[0].Message, test.fault) {
					t.Errorf("faults %v, want %q", faults, test.fault)
				}
			})
		})
	}
}
