package pleg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A scripted is a runtime in memory, without a wire, so that it lives in a
// synctest bubble. Its containers are the state that a test says.
type scripted struct {
	mu         sync.Mutex
	containers map[types.UID]map[string]observed.State // by pod, then container
	sandboxes  map[types.UID]map[string]observed.State
	listErr    error
	listHangs  bool
	listTakes  time.Duration
	broken     map[types.UID]error // inspections that fail
	hung       map[types.UID]bool  // inspections that hang
	takes      time.Duration       // an inspection
	noEvents   bool
	gate       chan struct{} // if there is one, a list begins when something comes of it
	streams    []chan *runtimeapi.ContainerEventResponse
	lists      int
	inspected  []types.UID
	busy, most int // inspections at a time
}

func newScripted() *scripted {
	return &scripted{
		containers: map[types.UID]map[string]observed.State{},
		sandboxes:  map[types.UID]map[string]observed.State{},
		broken:     map[types.UID]error{},
		hung:       map[types.UID]bool{},
	}
}

func (s *scripted) set(uid types.UID, name string, state observed.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.containers[uid] == nil {
		s.containers[uid] = map[string]observed.State{}
	}
	s.containers[uid][name] = state
}

func (s *scripted) setSandbox(uid types.UID, name string, state observed.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sandboxes[uid] == nil {
		s.sandboxes[uid] = map[string]observed.State{}
	}
	s.sandboxes[uid][name] = state
}

func (s *scripted) drop(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, uid)
	delete(s.sandboxes, uid)
}

// do changes the faults.
func (s *scripted) do(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// tell sends an event about a pod on the open streams; with an empty UID, one
// that says only which container it is about.
func (s *scripted) tell(uid types.UID, container string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &runtimeapi.ContainerEventResponse{ContainerId: container, CreatedAt: time.Now().UnixNano()}
	if uid != "" {
		e.PodSandboxStatus = &runtimeapi.PodSandboxStatus{Labels: map[string]string{runtimelabels.PodUID: string(uid)}}
	}
	for _, stream := range s.streams {
		stream <- e
	}
}

func (s *scripted) breakStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range s.streams {
		close(stream)
	}
	s.streams = nil
}

func (s *scripted) listCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

func (s *scripted) takeInspected() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.inspected
	s.inspected = nil
	slices.Sort(got)
	return got
}

func (s *scripted) Pods(ctx context.Context) ([]observed.Pod, error) {
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	s.lists++
	hangs, takes, err := s.listHangs, s.listTakes, s.listErr
	byUID := map[types.UID]*observed.Pod{}
	pod := func(uid types.UID) *observed.Pod {
		if byUID[uid] == nil {
			byUID[uid] = &observed.Pod{UID: uid, Namespace: "ns", Name: "name-" + string(uid)}
		}
		return byUID[uid]
	}
	for uid, containers := range s.containers {
		p := pod(uid)
		for id, state := range containers {
			p.Containers = append(p.Containers, observed.Container{ID: id, State: state})
		}
	}
	for uid, sandboxes := range s.sandboxes {
		p := pod(uid)
		for id, state := range sandboxes {
			p.Sandboxes = append(p.Sandboxes, observed.Sandbox{ID: id, State: state})
		}
	}
	var pods []observed.Pod
	for _, p := range byUID {
		pods = append(pods, *p)
	}
	s.mu.Unlock()
	if takes > 0 {
		time.Sleep(takes)
	}
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return pods, err
}

func (s *scripted) Inspect(ctx context.Context, uid types.UID) (*observed.Status, error) {
	s.mu.Lock()
	s.inspected = append(s.inspected, uid)
	s.busy++
	s.most = max(s.most, s.busy)
	takes := s.takes
	if s.hung[uid] {
		takes = 1 << 60
	}
	status, err := &observed.Status{UID: uid, Namespace: "ns", Name: "name-" + string(uid), Time: time.Now()}, s.broken[uid]
	for _, id := range slices.Sorted(maps.Keys(s.sandboxes[uid])) {
		state := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		if s.sandboxes[uid][id] == observed.Running {
			state = runtimeapi.PodSandboxState_SANDBOX_READY
		}
		status.Sandboxes = append(status.Sandboxes, &runtimeapi.PodSandboxStatus{Id: id, State: state})
	}
	for _, id := range slices.Sorted(maps.Keys(s.containers[uid])) {
		status.Containers = append(status.Containers, observed.ContainerStatus{ID: id, State: s.containers[uid][id]})
	}
	s.mu.Unlock()
	defer s.do(func() { s.busy-- })
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	return status, nil
}

func (s *scripted) Events(ctx context.Context, take func(*runtimeapi.ContainerEventResponse)) error {
	s.mu.Lock()
	if s.noEvents {
		s.mu.Unlock()
		return observed.ErrNoEvents
	}
	stream := make(chan *runtimeapi.ContainerEventResponse, 10_000)
	s.streams = append(s.streams, stream)
	s.mu.Unlock()
	for {
		select {
		case e, ok := <-stream:
			if !ok {
				return errors.New("stream broke")
			}
			take(e)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A rig is a generator that runs, and what came out of it.
type rig struct {
	*Generator
	runtime *scripted
	cache   *observed.Cache
}

// run calls test in a bubble, with a generator that runs beside it.
func run(t *testing.T, runtime *scripted, test func(*testing.T, rig)) {
	runWith(t, Config{}, runtime, test)
}

func runWith(t *testing.T, cfg Config, runtime *scripted, test func(*testing.T, rig)) {
	synctest.Test(t, func(t *testing.T) {
		cache := observed.NewCache()
		cfg.Runtime, cfg.Cache = runtime, cache
		g := New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := g.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		defer wg.Wait()
		defer cancel()
		test(t, rig{g, runtime, cache})
	})
}

// received returns the events that are there to be received, as "uid kind", in
// order of UID.
func (r rig) received() []string {
	var got []string
	for {
		synctest.Wait()
		select {
		case e := <-r.Events():
			got = append(got, fmt.Sprintf("%s %s", e.UID, e.Kind))
		default:
			slices.Sort(got)
			return got
		}
	}
}

func (r rig) wantEvents(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.received()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
