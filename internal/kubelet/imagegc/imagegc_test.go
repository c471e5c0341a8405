package imagegc

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

// A machine is a runtime with its disk and the pods that are wanted.
type machine struct {
	mu       sync.Mutex
	images   []*runtimeapi.Image
	used     []string
	sandbox  string
	wanted   []string
	unknown  bool
	capacity int64
	other    int64 // bytes that are no images'
	listErr  error
	stuck    map[string]error // images that cannot be removed
	removed  []string
	looks    int
}

func (m *machine) Images(context.Context) ([]*runtimeapi.Image, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	return slices.Clone(m.images), m.listErr
}

func (m *machine) UsedImages(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.used), nil
}

func (m *machine) SandboxImage(context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sandbox, nil
}

func (m *machine) RemoveImage(_ context.Context, ref string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.stuck[ref]; err != nil {
		return err
	}
	m.images = slices.DeleteFunc(m.images, func(i *runtimeapi.Image) bool { return i.GetId() == ref })
	m.removed = append(m.removed, ref)
	return nil
}

func (m *machine) space(context.Context) (Space, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := m.other
	for _, i := range m.images {
		used += int64(i.GetSize())
	}
	return Space{Capacity: m.capacity, Available: m.capacity - used}, nil
}

func (m *machine) wantedImages() ([]string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.wanted), !m.unknown
}

func (m *machine) do(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func (m *machine) gone() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.removed, "")
}

type rig struct {
	*machine
	*Collector
	t       *testing.T
	events  *record.FakeRecorder
	metrics *prometheus.Registry
}

// start runs a collector on m. It is called in a bubble.
func start(t *testing.T, m *machine, policy Policy) *rig {
	t.Helper()
	r := &rig{machine: m, t: t, events: record.NewFakeRecorder(100), metrics: prometheus.NewRegistry()}
	r.Collector = New(Config{
		Policy: policy, Runtime: m, Space: m.space, Wanted: m.wantedImages, Events: r.events,
		Node: &v1.ObjectReference{Kind: "Node", Name: "n"}, Metrics: r.metrics, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	runtest.Start(t, r.Run)
	synctest.Wait()
	return r
}

func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) wantGone(want string) {
	r.t.Helper()
	if got := r.gone(); got != want {
		r.t.Errorf("removed %q, want %q", got, want)
	}
}

func (r *rig) wantEvents(want ...string) {
	r.t.Helper()
	var got []string
	for len(r.events.Events) > 0 {
		kind, rest, _ := strings.Cut(<-r.events.Events, " ")
		reason, _, _ := strings.Cut(rest, " ")
		got = append(got, kind+" "+reason)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		r.t.Errorf("events: %s", diff)
	}
}

func full(images ...*runtimeapi.Image) *machine {
	return &machine{images: images, capacity: 1000, other: 900 - 100*int64(len(images))}
}

func TestMakesRoom(t *testing.T) {
	for name, test := range map[string]struct {
		change func(m *machine)
		want   string
	}{
		"down to the low threshold":           {func(*machine) {}, "a"},
		"as much as is needed":                {func(m *machine) { m.other += 50 }, "ab"},
		"nothing below the high threshold":    {func(m *machine) { m.other -= 60 }, ""},
		"not what a container uses":           {func(m *machine) { m.used = []string{"a"} }, "b"},
		"not what a wanted pod names":         {func(m *machine) { m.wanted = []string{"a", "b"} }, "c"},
		"not what sandboxes are made of":      {func(m *machine) { m.sandbox = "a" }, "b"},
		"not what is pinned":                  {func(m *machine) { m.images[0].Pinned = true }, "b"},
		"what cannot be removed is passed by": {func(m *machine) { m.stuck = map[string]error{"a": errors.New("busy")} }, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := full(image("a"), image("b"), image("c"))
				test.change(m)
				r := start(t, m, Policy{})
				r.wantGone(test.want)
			})
		})
	}
}

func TestTooLittleRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := full(image("a"))
		m.other += 100
		r := start(t, m, Policy{})
		r.wantGone("a")
		r.wantEvents("Warning FreeDiskSpaceFailed")
		if err := r.Err(); err != nil {
			t.Errorf("after one failure: %v", err)
		}
		r.after(5 * time.Minute)
		r.wantEvents("Warning FreeDiskSpaceFailed", "Warning ImageGCFailed") // the second time in a row
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), "90% of 0 MiB used") {
			t.Errorf("after two failures: %v", err)
		}
		m.do(func() { m.other = 0 })
		r.after(5 * time.Minute)
		r.wantEvents()
		if err := r.Err(); err != nil {
			t.Errorf("with room: %v", err)
		}
	})
}

func TestOneFailureIsNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := full(image("a"))
		m.listErr = errors.New("the runtime is away")
		r := start(t, m, Policy{})
		r.wantEvents()
		m.do(func() { m.listErr = nil })
		r.after(5 * time.Minute)
		r.wantEvents()
		r.wantGone("a")
	})
}

func TestInvalidCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &machine{}, Policy{})
		r.wantEvents("Warning InvalidDiskCapacity")
	})
}

func TestWaitsForAllSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := full(image("a"), image("b"))
		m.unknown = true
		r := start(t, m, Policy{})
		r.after(10 * time.Minute)
		r.wantGone("")
		if err := r.DeleteUnused(t.Context()); !errors.Is(err, errUnknown) {
			t.Errorf("DeleteUnused = %v, want it refused", err)
		}
		m.do(func() { m.unknown, m.wanted = false, []string{"a"} })
		r.after(time.Second)
		r.wantGone("b")
		r.wantEvents()
	})
}

func TestNewImagesStayForTheirMinimumAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := full()
		m.other = 0
		r := start(t, m, Policy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 8 * time.Minute})
		r.after(time.Minute)
		m.do(func() { m.images, m.other = []*runtimeapi.Image{image("a")}, 800 })
		r.after(4 * time.Minute) // detected
		r.wantGone("")
		if err := r.DeleteUnused(t.Context()); err != nil {
			t.Error(err)
		}
		r.wantGone("")
		r.after(10 * time.Minute)
		r.wantGone("a")
	})
}

func TestRemovesByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{images: []*runtimeapi.Image{image("a"), image("b"), image("c", pinned)}, used: []string{"b"}, capacity: 1000}
		r := start(t, m, Policy{HighThresholdPercent: 100, LowThresholdPercent: 80, MinAge: time.Minute, MaxAge: 12 * time.Minute})
		r.after(11 * time.Minute)
		r.wantGone("")
		r.after(5 * time.Minute)
		r.wantGone("a") // unused since we began to look
		m.do(func() { m.used = nil })
		r.after(10 * time.Minute)
		r.wantGone("a")
		r.after(10 * time.Minute)
		r.wantGone("ab")
		const want = `# HELP kubelet_image_garbage_collected_total Images removed because they were unused for too long (age) or to make room (space).
# TYPE kubelet_image_garbage_collected_total counter
kubelet_image_garbage_collected_total{reason="age"} 2
`
		if err := testutil.GatherAndCompare(r.metrics, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}

func TestDeleteUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{
			images: []*runtimeapi.Image{image("a"), image("b"), image("c", pinned), image("d")},
			used:   []string{"b"}, wanted: []string{"d"}, capacity: 1000,
		}
		r := start(t, m, Policy{HighThresholdPercent: 100, LowThresholdPercent: 80})
		r.wantGone("")
		if err := r.DeleteUnused(t.Context()); err != nil {
			t.Error(err)
		}
		r.wantGone("a")
	})
}

func TestLooksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{capacity: 1000}
		r := start(t, m, Policy{})
		r.after(time.Hour)
		if m.looks != 13 {
			t.Errorf("looked %d times in an hour, want once at the start and once in 5 minutes", m.looks)
		}
	})
}
