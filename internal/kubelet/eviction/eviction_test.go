package eviction

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

// Where things are in the tests.
const (
	nodeDir  = "/kubelet"
	imageDir = "/images"
)

// A host is a machine of 1000 bytes of memory, disks of 1000 bytes and 1000
// inodes and 1000 process identifiers, with its runtime and its pods. What a pod
// has is given back when it has ended.
type host struct {
	mu       sync.Mutex
	memory   int64 // that no pod has
	others   int64 // bytes of the node's disk that no pod has
	unused   int64 // bytes of the images' disk that are unused images'
	dead     int64 // bytes of the images' disk that are dead containers'
	devices  map[string]uint64
	pods     map[types.UID]*hosted
	readErr  error
	statsErr error
	imageErr error
	slow     time.Duration // how long a pod takes to end
	log      []string
	counted  map[string]int // how often the volumes of a pod were
	counting time.Duration  // how long that takes
}

// A hosted is a pod on the host.
type hosted struct {
	subject
	state  lifecycle.State
	leaves int64                 // bytes of its layer that stay when it has ended
	known  []podvolumes.Measured // of its volumes
	stale  bool                  // what is known of them
}

func newHost(subjects ...subject) *host {
	h := &host{memory: 500, devices: map[string]uint64{nodeDir: 1, imageDir: 2}, pods: map[types.UID]*hosted{}, counted: map[string]int{}}
	for _, s := range subjects {
		h.pods[s.pod.UID] = &hosted{subject: s, state: lifecycle.Syncing}
	}
	return h
}

func (h *host) do(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *host) say(format string, args ...any) { h.log = append(h.log, fmt.Sprintf(format, args...)) }

// sum adds up what the pods that have not ended use of a signal.
func (h *host) sum(s Signal, l layout) int64 {
	var n int64
	for _, p := range h.pods {
		if p.state < lifecycle.Finished && p.usage != nil {
			n += uses(s, l, p.usage)
		}
	}
	return n
}

func (h *host) Free() (stats.NodeStats, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	used := h.memory + h.sum(MemoryAvailable, layout{})
	return stats.NodeStats{
		Memory: &stats.MemoryStats{AvailableBytes: new(uint64(1000 - used)), WorkingSetBytes: new(uint64(used))},
		Rlimit: &stats.RlimitStats{MaxPID: new(int64(1000)), NumOfRunningProcesses: new(h.sum(PIDAvailable, layout{}))},
	}, h.readErr
}

func (h *host) Filesystem(path string) (stats.FsStats, uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	device := h.devices[path]
	used := int64(0)
	if device == h.devices[nodeDir] {
		used += h.others + h.sum(NodeFSAvailable, layout{})
	}
	if device == h.devices[imageDir] {
		used += h.unused + h.dead + h.sum(ImageFSAvailable, layout{layersWithImages: true})
	}
	return stats.FsStats{
		AvailableBytes: new(uint64(1000 - used)), CapacityBytes: new(uint64(1000)), InodesFree: new(uint64(0)), Inodes: new(uint64(0)),
	}, device, nil
}

func (h *host) ImageFS(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: imageDir}}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: at, ContainerFilesystems: at}, h.imageErr
}

func (h *host) ContainerStats(context.Context) ([]*runtimeapi.ContainerStats, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now().UnixNano()
	var all []*runtimeapi.ContainerStats
	for uid, p := range h.pods {
		if p.usage == nil || p.state >= lifecycle.Terminated {
			continue
		}
		c := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Labels: map[string]string{"io.kubernetes.pod.uid": string(uid)},
		}}
		if m := p.usage.Memory; m != nil {
			c.Memory = &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: &runtimeapi.UInt64Value{Value: *m.WorkingSetBytes}}
		}
		if l := p.usage.Containers[0].Rootfs; l != nil {
			c.WritableLayer = &runtimeapi.FilesystemUsage{
				Timestamp: now, UsedBytes: &runtimeapi.UInt64Value{Value: *l.UsedBytes}, InodesUsed: &runtimeapi.UInt64Value{Value: *l.InodesUsed},
			}
		}
		all = append(all, c)
	}
	return all, h.statsErr
}

func (h *host) WorkingSet() (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return uint64(h.sum(MemoryAvailable, layout{})), nil
}

func (h *host) Usage(uid types.UID) (workingSet, tasks uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pods[uid]
	if p.usage == nil {
		return 0, 0, errors.New("no such group")
	}
	return uint64(uses(MemoryAvailable, layout{}, p.usage)), uint64(uses(PIDAvailable, layout{}, p.usage)), nil
}

func (h *host) LogUsage(_ context.Context, pod *v1.Pod) (map[string]stats.FsStats, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pods[pod.UID]
	if p.usage == nil {
		return nil, errors.New("cannot be read")
	}
	found := map[string]stats.FsStats{}
	if l := p.usage.Containers[0].Logs; l != nil {
		found["c"] = *l
	}
	return found, nil
}

// Refresh has what volumes have now become known.
func (h *host) Refresh(ctx context.Context, _ time.Duration, pods ...*v1.Pod) {
	h.mu.Lock()
	counting := h.counting
	h.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(counting):
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, pod := range pods {
		h.counted[pod.Name]++
		p := h.pods[pod.UID]
		if p.usage == nil || ctx.Err() != nil {
			continue
		}
		p.known = nil
		for _, v := range p.usage.VolumeStats {
			p.known = append(p.known, podvolumes.Measured{
				Name: v.Name, Usage: podvolumes.Usage{UsedBytes: v.UsedBytes, InodesUsed: v.InodesUsed}, Time: time.Now(),
				Stale: p.stale, Ephemeral: true, Source: "emptyDir",
			})
		}
	}
}

func (h *host) Volumes(pod *v1.Pod) []podvolumes.Measured {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pods[pod.UID].known
}

func (h *host) Update(req lifecycle.Request) {
	h.mu.Lock()
	p := h.pods[req.UID()]
	h.say("%v %s in %ds", req.Kind, p.pod.Name, *req.Grace)
	p.state = lifecycle.Terminating
	slow := h.slow
	h.mu.Unlock()
	time.AfterFunc(slow, func() {
		h.do(func() { p.state, h.dead = lifecycle.Finished, h.dead+p.leaves })
	})
}

func (h *host) Snapshot() []lifecycle.Info {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []lifecycle.Info
	for uid, p := range h.pods {
		all = append(all, lifecycle.Info{UID: uid, State: p.state, Pod: p.pod})
	}
	return all
}

func (h *host) End(uid types.UID, reason, _ string, disrupted bool) {
	h.do(func() { h.say("%s %s disrupted=%v", reason, h.pods[uid].pod.Name, disrupted) })
}

func (h *host) removeImages(context.Context) error {
	h.do(func() { h.say("remove images"); h.unused = 0 })
	return nil
}

func (h *host) removeContainers(context.Context) error {
	h.do(func() { h.say("remove containers"); h.dead = 0 })
	return nil
}

// A rig is a Manager that runs on a host.
type rig struct {
	*Manager
	t       *testing.T
	host    *host
	events  *record.FakeRecorder
	metrics *prometheus.Registry
}

func start(t *testing.T, h *host, settings Settings) *rig {
	t.Helper()
	return startKnown(t, h, settings, nil)
}

func startKnown(t *testing.T, h *host, settings Settings, known <-chan struct{}) *rig {
	t.Helper()
	p, err := Parse(settings)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, host: h, events: record.NewFakeRecorder(1000), metrics: prometheus.NewRegistry()}
	r.Manager = New(Config{
		Policy: p, Dir: nodeDir, Machine: h, Runtime: h, Cgroups: h, Logs: h, Volumes: h, Workers: h, Statuses: h,
		Images: h.removeImages, Containers: h.removeContainers, Changed: func() { h.do(func() { h.say("changed") }) }, Known: known,
		Recorder: r.events, Node: &v1.ObjectReference{Kind: "Node", Name: "n"}, Metrics: r.metrics, Log: slog.New(slog.DiscardHandler),
	})
	runtest.Start(t, r.Run)
	synctest.Wait()
	return r
}

// after lets time pass, and holds what happened meanwhile and what the node has
// then.
func (r *rig) after(d time.Duration, conditions string, want ...string) {
	r.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	r.host.mu.Lock()
	got := r.host.log
	r.host.log = nil
	r.host.mu.Unlock()
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("what happened (-want +got):\n%s", diff)
	}
	if got := fmt.Sprint(r.Conditions()); got != "["+conditions+"]" {
		r.t.Errorf("conditions %s, want %s", got, conditions)
	}
}

func hard(pairs ...string) Settings {
	s := Settings{Hard: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.Hard[pairs[i]] = pairs[i+1]
	}
	return s
}

func TestMemoryIsLow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(subjectOf("big", memory(100)), subjectOf("small", memory(50)), subjectOf("asked", asks(v1.ResourceMemory, 200), memory(150)))
		r := start(t, h, hard("memory.available", "100"))
		r.after(time.Minute, "")
		h.do(func() { h.memory = 650 })
		r.after(10*time.Second, "MemoryPressure", "changed", "Evicted big disrupted=true", "kill big in 1s")
		r.after(5*time.Minute-time.Second, "MemoryPressure")
		r.after(10*time.Second, "", "changed")
		if e := <-r.events.Events; e != "Warning EvictionThresholdMet Attempting to reclaim memory" {
			t.Errorf("event %q", e)
		}
		if e := <-r.events.Events; !strings.HasPrefix(e, "Warning Evicted The node was low on resource: memory. Threshold quantity: 100, available: 50. Container c was using 100, request is 0") {
			t.Errorf("event %q", e)
		}
		const want = `# HELP kubelet_evictions Pods that were evicted, by the signal because of which.
# TYPE kubelet_evictions counter
kubelet_evictions{eviction_signal="memory.available"} 1
`
		if err := testutil.GatherAndCompare(r.metrics, strings.NewReader(want), "kubelet_evictions"); err != nil {
			t.Error(err)
		}
		if n := testutil.CollectAndCount(r.Manager.metrics.age); n != 1 {
			t.Errorf("%d series of ages", n)
		}
	})
}

// TestOneAfterTheOther holds that no second pod goes before the first has ended,
// and that the next look comes at once then.
func TestOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(subjectOf("a", memory(90)), subjectOf("b", memory(80)), subjectOf("c", memory(70)), subjectOf("critical", priority(2_000_000_000), memory(100)))
		h.slow = 20 * time.Second
		h.memory = 750 // 1090 used
		r := start(t, h, Settings{Hard: map[string]string{"memory.available": "50"}, MinimumReclaim: map[string]string{"memory.available": "10"}})
		r.after(19*time.Second, "MemoryPressure", "changed", "Evicted a disrupted=true", "kill a in 1s")
		r.after(2*time.Second, "MemoryPressure", "Evicted b disrupted=true", "kill b in 1s")
		r.after(time.Minute, "MemoryPressure") // 80 left
	})
}

// TestPodsAreNotKnownYet holds that an agent that starts says at once what is low,
// but does not judge pods before it knows them, unless that takes too long.
func TestPodsAreNotKnownYet(t *testing.T) {
	for name, answers := range map[string]bool{"known in a while": true, "a source does not answer": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost()
				h.memory = 950
				known := make(chan struct{})
				r := startKnown(t, h, hard("memory.available", "100"), known)
				r.after(3*time.Second, "MemoryPressure", "changed")
				if faults := r.Faults(); len(faults) != 1 || strings.Contains(faults[0], "no pod") {
					t.Errorf("faults %q", faults)
				}
				s := subjectOf("big", memory(40))
				h.do(func() { h.pods[s.pod.UID] = &hosted{subject: s, state: lifecycle.Syncing} })
				wait := 8 * time.Second
				if answers {
					close(known)
					wait = time.Second
				}
				r.after(wait, "MemoryPressure", "Evicted big disrupted=true", "kill big in 1s")
			})
		})
	}
}

// TestOneThingIsHopeless holds that what no pod can cure does not keep the node
// from doing something about the rest.
func TestOneThingIsHopeless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(subjectOf("forks", processes(300)), subjectOf("calm", processes(10)))
		h.others, h.slow = 950, 2*time.Second
		r := start(t, h, hard("nodefs.available", "100", "pid.available", "750"))
		r.after(time.Second, "DiskPressure PIDPressure", "changed", "remove containers", "Evicted forks disrupted=true", "kill forks in 1s")
		r.after(10*time.Second, "DiskPressure PIDPressure", "remove containers")
		if faults := r.Faults(); len(faults) != 1 || !strings.Contains(faults[0], "nodefs.available is 50, less than 100: no pod that may be evicted uses any of it") {
			t.Errorf("faults %q", faults)
		}
	})
}

// TestAPodThatDoesNotEnd holds that one that does not end is not asked again,
// and in time another one goes.
func TestAPodThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(subjectOf("a", memory(90)), subjectOf("b", memory(80)))
		h.slow = time.Hour
		h.memory = 800
		r := start(t, h, hard("memory.available", "50"))
		r.after(31*time.Second, "MemoryPressure", "changed", "Evicted a disrupted=true", "kill a in 1s")
		r.after(time.Second, "MemoryPressure", "Evicted b disrupted=true", "kill b in 1s")
		r.after(10*time.Minute, "MemoryPressure")
		if faults := r.Faults(); len(faults) != 1 || !strings.Contains(faults[0], "memory.available is 30, less than 50: no pod that may be evicted uses any of it") {
			t.Errorf("faults %q", faults)
		}
		time.Sleep(time.Hour)
	})
}

func TestSoftThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		grace := func(n int64) func(*subject) {
			return func(s *subject) { s.pod.Spec.TerminationGracePeriodSeconds = &n }
		}
		h := newHost(subjectOf("a", memory(100), grace(30)), subjectOf("b", memory(50), grace(5)))
		r := start(t, h, Settings{
			Hard: map[string]string{}, Soft: map[string]string{"memory.available": "500"}, SoftGracePeriod: map[string]string{"memory.available": "1m"},
			MaxPodGracePeriod: 10, TransitionPeriod: 30 * time.Second,
		})
		r.after(59*time.Second, "MemoryPressure", "changed")
		r.after(2*time.Second, "MemoryPressure", "Evicted a disrupted=true", "kill a in 10s", "Evicted b disrupted=true", "kill b in 5s")
		r.after(time.Minute, "", "changed")
	})
}

func TestDiskIsLow(t *testing.T) {
	for name, test := range map[string]struct {
		oneDisk bool
		change  func(h *host)
		want    []string
	}{
		"unused images are enough":                           {true, func(h *host) { h.unused = 500 }, []string{"changed", "remove containers", "remove images"}},
		"dead containers are enough, where images are apart": {false, func(h *host) { h.dead = 920 }, []string{"changed", "remove containers", "remove images"}},
		"the one that grows goes": {
			true, func(h *host) { h.others, h.unused = 250, 10 },
			[]string{"changed", "remove containers", "remove images", "Evicted grows disrupted=true", "kill grows in 1s"},
		},
		"its layer goes with what is left of it": {
			true, func(h *host) { h.others, h.pods["layer"].leaves, h.pods["grows"].usage = 600, 300, nil },
			[]string{
				"changed", "remove containers", "remove images", "Evicted layer disrupted=true", "kill layer in 1s",
				"remove containers", "remove images",
			},
		},
		"apart: images do not go for the node's disk": {
			false, func(h *host) { h.others = 600 },
			[]string{"changed", "remove containers", "Evicted grows disrupted=true", "kill grows in 1s"},
		},
		"apart: layers go for the images' disk": {
			false, func(h *host) { h.pods["layer"].usage.Containers[0].Rootfs = filesystem(950, 1) },
			[]string{"changed", "remove containers", "remove images", "Evicted layer disrupted=true", "kill layer in 1s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(subjectOf("grows", volume(350, 1)), subjectOf("layer", layer(300, 1)), subjectOf("other", logs(10, 1)))
				if test.oneDisk {
					h.devices[imageDir] = h.devices[nodeDir]
				}
				r := start(t, h, hard("nodefs.available", "10%", "imagefs.available", "10%"))
				r.after(time.Second, "")
				h.do(func() { test.change(h) })
				r.after(19*time.Second, "DiskPressure", test.want...)
				r.after(time.Minute, "DiskPressure")
				if faults := r.Faults(); len(faults) != 0 {
					t.Errorf("faults %q", faults)
				}
			})
		})
	}
}

// TestADiskThatOthersFilled holds that no pod goes when that would not help: all
// of them have too little on the disk.
func TestADiskThatOthersFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(subjectOf("a", volume(20, 1)), subjectOf("b", logs(20, 1)))
		r := start(t, h, hard("nodefs.available", "10%"))
		h.do(func() { h.others = 940 }) // 20 left, 80 are missing
		r.after(11*time.Second, "DiskPressure", "changed", "remove containers")
		if faults := r.Faults(); len(faults) != 1 || !strings.Contains(faults[0], "nodefs.available is 20, less than 100: all pods that may be evicted have only 40 on it") {
			t.Errorf("faults %q", faults)
		}
		h.do(func() { h.others = 900 }) // 60 left, 40 are missing
		r.after(10*time.Second, "DiskPressure",
			"remove containers", "Evicted a disrupted=true", "kill a in 1s", "remove containers", "Evicted b disrupted=true", "kill b in 1s")
	})
}

func TestProcessesAreLow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(subjectOf("forks", processes(800)), subjectOf("low", priority(-1), processes(10)), subjectOf("other", processes(100)))
		r := start(t, h, hard("pid.available", "100"))
		r.after(5*time.Second, "PIDPressure", "changed", "Evicted low disrupted=true", "kill low in 1s")
		r.after(time.Minute, "PIDPressure") // 100 left
	})
}

// TestNothingIsDoneByWhatIsNotKnown holds that readings that fail cost no pod
// and that what was known of it is not acted upon.
func TestNothingIsDoneByWhatIsNotKnown(t *testing.T) {
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		settings Settings
		fail     func(h *host)
		want     []string // before it works again
	}{
		"the machine":        {hard("memory.available", "999"), func(h *host) { h.readErr = failed }, nil},
		"where images are":   {hard("imagefs.available", "999"), func(h *host) { h.imageErr = failed }, nil},
		"the pods":           {hard("memory.available", "999"), func(h *host) { h.pods["a"].usage = nil }, []string{"changed"}},
		"what was written":   {hard("imagefs.available", "999"), func(h *host) { h.statsErr = failed }, []string{"changed", "remove containers", "remove images"}},
		"what is in folders": {hard("nodefs.available", "999"), func(h *host) { h.pods["a"].usage, h.others = nil, 500 }, []string{"changed", "remove containers"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(subjectOf("a", memory(10), layer(10, 1), volume(10, 1)))
				usage := h.pods["a"].usage
				test.fail(h)
				start(t, h, test.settings)
				h.do(func() {
					if diff := cmp.Diff(test.want, h.log); diff != "" {
						t.Errorf("what happened (-want +got):\n%s", diff)
					}
					h.readErr, h.statsErr, h.imageErr, h.others, h.memory = nil, nil, nil, 0, 500
					h.pods["a"].usage = usage
				})
				time.Sleep(11 * time.Second)
				synctest.Wait()
				h.do(func() {
					if !slices.Contains(h.log, "Evicted a disrupted=true") {
						t.Errorf("it works again, and this happened: %v", h.log)
					}
				})
			})
		})
	}
}

// TestNoThresholds holds that a node without any does nothing.
func TestNoThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(subjectOf("a", memory(10)))
		h.memory = 990
		r := start(t, h, hard())
		r.after(time.Hour, "")
	})
}
