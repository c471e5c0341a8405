package podsync

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

const mib = 1 << 20

// linux is a container's size: thousandths of a CPU and MiB.
func linux(milli, memory int64) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{
		CpuShares: milli * 1024 / 1000, CpuPeriod: 100_000, CpuQuota: milli * 100, MemoryLimitInBytes: memory * mib,
	}
}

func TestPlanResize(t *testing.T) {
	restartFor := func(name v1.ResourceName) []v1.ContainerResizePolicy {
		return []v1.ContainerResizePolicy{{ResourceName: name, RestartPolicy: v1.RestartContainer}}
	}
	was := linux(100, 64)
	tests := []struct {
		name   string
		pod    string // default "Always: a b"
		status string // default "s0:ready a=running b=running"
		have   *runtimeapi.LinuxContainerResources
		want   map[string]*runtimeapi.LinuxContainerResources // default what it has
		asked  int64                                          // MiB of memory that a asked for when it was created; what it asks for now is nothing
		policy map[string][]v1.ContainerResizePolicy
		plan   string
		order  string // of the containers that are resized
	}{
		{name: "nothing", have: was},
		{name: "memory", have: was, want: map[string]*runtimeapi.LinuxContainerResources{"a": linux(100, 128)}, order: "a"},
		{name: "CPU", have: was, want: map[string]*runtimeapi.LinuxContainerResources{"b": linux(50, 64)}, order: "b"},
		{name: "what shrinks comes first", have: was, want: map[string]*runtimeapi.LinuxContainerResources{"a": linux(200, 128), "b": linux(100, 32)}, order: "b a"},
		{
			name: "restart", have: was, want: map[string]*runtimeapi.LinuxContainerResources{"a": linux(100, 128)},
			policy: map[string][]v1.ContainerResizePolicy{"a": restartFor(v1.ResourceMemory)},
			plan:   "kill a-1 (Container a resize requires restart, will be restarted), start a",
		},
		{
			name: "restart for the other resource", have: was, want: map[string]*runtimeapi.LinuxContainerResources{"a": linux(100, 128)},
			policy: map[string][]v1.ContainerResizePolicy{"a": restartFor(v1.ResourceCPU)}, order: "a",
		},
		{name: "another memory request", have: was, asked: 64},
		{
			name: "restart for another memory request", have: was, asked: 64,
			policy: map[string][]v1.ContainerResizePolicy{"a": restartFor(v1.ResourceMemory)},
			plan:   "kill a-1 (Container a resize requires restart, will be restarted), start a",
		},
		{
			name: "restart for another memory request, of what is not known", asked: 64,
			policy: map[string][]v1.ContainerResizePolicy{"a": restartFor(v1.ResourceMemory)}, order: "b",
			plan: "kill a-1 (Container a resize requires restart, will be restarted), start a",
		},
		{name: "no restart for the same memory request", have: was, policy: map[string][]v1.ContainerResizePolicy{"a": restartFor(v1.ResourceMemory)}},
		{name: "of what is not known", order: "a b", policy: map[string][]v1.ContainerResizePolicy{"a": restartFor(v1.ResourceMemory)}},
		{name: "not what does not run", status: "s0:ready a=exit1 b=running", have: was, want: map[string]*runtimeapi.LinuxContainerResources{"a": linux(100, 128)}, plan: "start a"},
		{name: "sidecar", pod: "Always: sidecar a b", have: was, want: map[string]*runtimeapi.LinuxContainerResources{"a": linux(100, 128)}, order: "a"},
		{
			name: "sidecar, with a restart", pod: "Always: sidecar a b", have: was, want: map[string]*runtimeapi.LinuxContainerResources{"a": linux(100, 128)},
			policy: map[string][]v1.ContainerResizePolicy{"a": restartFor(v1.ResourceMemory)},
			plan:   "kill a-1 (Container a resize requires restart), start a",
		},
		{name: "init container", pod: "Always: init a b", status: "s0:ready a=running", have: was, want: map[string]*runtimeapi.LinuxContainerResources{"a": linux(100, 128)}, order: "a"},
		{name: "not an ephemeral one", pod: "Always: b ephemeral a", have: was, want: map[string]*runtimeapi.LinuxContainerResources{"a": linux(100, 128)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod := planPod(orElse(test.pod, "Always: a b"))
			for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
				for i := range list {
					list[i].ResizePolicy = test.policy[list[i].Name]
				}
			}
			status := planStatus(pod, orElse(test.status, "s0:ready a=running b=running"))
			if a := status.Container("a"); a != nil {
				a.MemoryAsked = new(test.asked * mib)
			}
			got := plan(planInput{
				pod: pod, status: status,
				probes: noProbes{}, pauses: planPauses{}, now: epoch,
				sizes: func(c *v1.Container, _ *observed.ContainerStatus) (want, have *runtimeapi.LinuxContainerResources) {
					if want = test.want[c.Name]; want == nil {
						want = was
					}
					return want, test.have
				},
			})
			if diff := cmp.Diff(show(got), test.plan); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
			var order []string
			for _, z := range got.resizes {
				order = append(order, z.name)
			}
			if restarts := strings.Contains(test.plan, "requires restart"); got.restarts != restarts {
				t.Errorf("restarts for a resize: got %v, want %v", got.restarts, restarts)
			}
			if got := strings.Join(order, " "); got != test.order {
				t.Errorf("resized: got %q, want %q", got, test.order)
			}
		})
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// size gives the pod's first container another memory limit, as a granted
// resize does.
func (w *world) size(memory string) {
	w.pod = w.pod.DeepCopy() // the last step still has the old one
	w.pod.Generation++
	limit := v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
	w.main().Resources = v1.ResourceRequirements{Limits: limit, Requests: limit}
}

func (w *world) wantMemory(want int64) {
	w.t.Helper()
	if got := w.newest("main").Resources.GetLinux().GetMemoryLimitInBytes(); got != want*mib {
		w.t.Errorf("memory limit: got %d, want %d MiB", got, want)
	}
}

// wantLog checks what the cgroup was told since the last call.
func (w *world) wantLog(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(w.log, want); diff != "" {
		w.t.Errorf("cgroup: got -, want +:\n%s", diff)
	}
	w.log = nil
}

func (w *world) wantProgress(want *allocation.Progress) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(w.reported, want); diff != "" {
		w.t.Errorf("progress that was reported: got -, want +:\n%s", diff)
	}
}

// TestResize holds that a running container is resized in place, once, that the
// pod's cgroup grows before it and shrinks after it, and that memory in use is
// not taken away.
func TestResize(t *testing.T) {
	w := newWorld(t, nil)
	w.size("64Mi")
	w.mustSync()
	w.wantMemory(64)
	id := w.newest("main").ID
	w.eventsSoFar()
	w.wantLog("cgroup 64Mi")

	w.size("128Mi")
	w.mustSync()
	w.wantMemory(128)
	w.wantLog("cgroup 128Mi")
	w.wantProgress(nil)
	completed := func(memory string, generation string) string {
		list := `{"memory":"` + memory + `"}`
		return `Normal ResizeCompleted Pod resize completed: {"containers":[{"name":"main","resources":{"limits":` + list + `,"requests":` + list + `}}],"generation":` + generation + `}`
	}
	w.wantEvents(completed("128Mi", "2"))

	w.size("96Mi")
	w.mustSync()
	w.wantMemory(96)
	w.wantLog("cgroup 128Mi", "cgroup 96Mi")
	w.wantEvents(completed("96Mi", "3"))

	w.mustSync()
	if calls := w.fake.Calls("UpdateContainerResources"); len(calls) != 2 {
		t.Errorf("%d updates, want 2", len(calls))
	}
	w.wantEvents()
	w.wantLog("cgroup 96Mi")

	w.fake.SetProgram("main", crifake.Program{Memory: 50 * mib})
	w.size("32Mi")
	w.mustSync()
	w.wantMemory(96)
	w.wantLog("cgroup 96Mi")
	const inUse = `cannot decrease memory limits: attempting to set container "main" memory limit (33554432) below current usage (52428800)`
	w.wantProgress(&allocation.Progress{Error: inUse, Generation: 4})
	w.wantRetry(w.cfg.ResizeRetry)
	w.mustSync()
	if n := countPrefix(w.eventsSoFar(), "Warning ResizeError "); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
	w.fake.SetProgram("main", crifake.Program{})
	w.mustSync()
	w.wantMemory(32)
	w.wantProgress(nil)
	w.wantEvents(completed("32Mi", "4"))

	w.fake.Fail("UpdateContainerResources", errors.New("no"))
	w.size("64Mi")
	w.mustSync()
	w.wantMemory(32)
	w.mu.Lock()
	if w.reported == nil || !strings.Contains(w.reported.Error, "update resources") {
		t.Errorf("progress: %+v", w.reported)
	}
	w.mu.Unlock()
	if got := w.newest("main").ID; got != id {
		t.Errorf("container %s became %s", id, got)
	}
}

func countPrefix(all []string, prefix string) int {
	return len(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasPrefix(s, prefix) }))
}

// TestResizeAfterARestart holds that a new agent does what an earlier one had
// only granted, and nothing to a pod that is as it should be.
func TestResizeAfterARestart(t *testing.T) {
	w := newWorld(t, nil)
	w.size("64Mi")
	w.mustSync()
	w.Syncer = New(w.cfg)
	w.mustSync()
	w.wantProgress(nil)
	if calls := w.fake.Calls("UpdateContainerResources"); len(calls) != 0 {
		t.Errorf("%d updates, want none", len(calls))
	}
	w.Syncer = New(w.cfg)
	w.size("128Mi")
	w.mustSync()
	w.wantMemory(128)
	if n := countPrefix(w.eventsSoFar(), "Normal ResizeCompleted "); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
}

// TestResizeRestarts holds that a container that wants to be restarted for a
// resource is, and has its new size from the start.
func TestResizeRestarts(t *testing.T) {
	w := newWorld(t, nil)
	w.size("64Mi")
	w.main().ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	w.mustSync()
	id := w.newest("main").ID
	w.eventsSoFar()
	w.size("128Mi")
	w.mustSync()
	w.wantMemory(128)
	if c := w.newest("main"); c.ID == id || c.RestartCount != 1 || c.State != observed.Running {
		t.Errorf("container: %+v", c)
	}
	w.wantProgress(&allocation.Progress{Generation: 2}) // the status that was told is of the container before
	if n := countPrefix(w.eventsSoFar(), "Normal ResizeCompleted "); n != 0 {
		t.Errorf("told %d times that it is done, before the container was seen", n)
	}
	w.mustSync()
	if c := w.newest("main"); c.RestartCount != 1 {
		t.Errorf("restarted again: %+v", c)
	}
	w.wantProgress(nil)
	if n := countPrefix(w.eventsSoFar(), "Normal ResizeCompleted "); n != 1 {
		t.Errorf("told %d times that it is done, want once", n)
	}
}

// TestResizeOfARequest holds that a memory request, of which the kernel knows
// nothing, changes without the container, unless that wants to be restarted, which
// an agent does too that comes after the one that granted it.
func TestResizeOfARequest(t *testing.T) {
	for policy, restarts := range map[v1.ResourceResizeRestartPolicy]int32{v1.NotRequired: 0, v1.RestartContainer: 1} {
		for _, anew := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, new agent %v", policy, anew), func(t *testing.T) {
				w := newWorld(t, nil)
				w.size("64Mi")
				w.main().ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: policy}}
				w.mustSync()
				w.eventsSoFar()
				w.pod = w.pod.DeepCopy()
				w.main().Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("32Mi")}
				if anew {
					w.Syncer = New(w.cfg)
				}
				w.mustSync()
				w.mustSync()
				if got := w.newest("main").RestartCount; got != restarts {
					t.Errorf("%d restarts, want %d", got, restarts)
				}
				want := 1
				if anew && restarts == 0 {
					want = 0 // nothing shows that there was something to do
				}
				if n := countPrefix(w.eventsSoFar(), "Normal ResizeCompleted "); n != want {
					t.Errorf("told %d times, want %d", n, want)
				}
			})
		}
	}
}

// A limit that is taken away has to be said: zero is no change to a runtime.
func TestResizeToNoLimit(t *testing.T) {
	z := resize{want: &runtimeapi.LinuxContainerResources{CpuShares: 102, CpuPeriod: 100_000}, have: linux(100, 64)}
	if got := z.change(); got.GetCpuQuota() != -1 || got.GetMemoryLimitInBytes() != -1 {
		t.Errorf("got %v", got)
	}
	z.have = z.want
	if got := z.change(); got.GetCpuQuota() != 0 || got.GetMemoryLimitInBytes() != 0 {
		t.Errorf("got %v", got)
	}
	if s := sizeOf(&runtimeapi.LinuxContainerResources{CpuQuota: -1, CpuPeriod: 100_000, MemoryLimitInBytes: -1}); s != (size{}) {
		t.Errorf("no limits: %+v", s)
	}
}
