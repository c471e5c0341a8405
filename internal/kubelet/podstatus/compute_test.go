package podstatus

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

var now = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// pod makes a pod with these regular containers; an option changes it.
func pod(policy v1.RestartPolicy, containers string, options ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u", Generation: 3, ResourceVersion: "1"},
		Spec:       v1.PodSpec{RestartPolicy: policy},
	}
	for name := range strings.FieldsSeq(containers) {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Image: "img:" + name})
	}
	for _, option := range options {
		option(p)
	}
	return p
}

func withInit(names string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for name := range strings.FieldsSeq(names) {
			c := v1.Container{Name: strings.TrimSuffix(name, "*"), Image: "img"}
			if strings.HasSuffix(name, "*") {
				c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
}

func static(p *v1.Pod) {
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "h1"}
}

func deleting(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }

// seen makes an observation: "NAME:STATE" with STATE running, created, unknown
// or an exit code, newest first; "-" instead of a sandbox: none.
func seen(runs string) *observed.Status {
	s := &observed.Status{UID: "u", IPs: []string{"10.1.0.7"}}
	ready := runtimeapi.PodSandboxState_SANDBOX_READY
	attempts := map[string]int32{}
	for run := range strings.FieldsSeq(runs) {
		if run == "-" {
			return &observed.Status{UID: "u"}
		}
		if run == "dead" {
			ready = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
			s.IPs = nil
			continue
		}
		name, state, _ := strings.Cut(run, ":")
		c := observed.ContainerStatus{
			ID: fmt.Sprintf("%s-%d", name, attempts[name]), Name: name, SandboxID: "s", Image: "img:" + name, ImageID: "sha256:" + name,
			CreatedAt: now.Add(-time.Minute),
		}
		attempts[name]++
		switch state {
		case "running":
			c.State, c.StartedAt = observed.Running, now.Add(-50*time.Second)
		case "created":
			c.State = observed.Created
		case "unknown":
			c.State = observed.Unknown
		default:
			c.State, c.StartedAt, c.FinishedAt = observed.Exited, now.Add(-50*time.Second), now.Add(-time.Second)
			code, err := strconv.ParseInt(state, 10, 32)
			if err != nil {
				panic(err)
			}
			c.ExitCode = int32(code)
			c.Reason = "Completed"
			if c.ExitCode != 0 {
				c.Reason, c.Message = "Error", "it broke"
			}
		}
		s.Containers = append(s.Containers, c)
	}
	s.Sandboxes = []*runtimeapi.PodSandboxStatus{{
		Id: "s", State: ready, Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.1.0.7"},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{}}},
	}}
	return s
}

func wait(pairs ...string) map[string]reason.Wait {
	waits := map[string]reason.Wait{}
	for i := 0; i < len(pairs); i += 2 {
		waits[pairs[i]] = reason.Wait{Reason: pairs[i+1], Message: "because"}
	}
	return waits
}

func TestPhase(t *testing.T) {
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	tests := []struct {
		name     string
		pod      *v1.Pod
		observed *observed.Status
		waits    map[string]reason.Wait
		ended    bool
		want     v1.PodPhase
	}{
		{"nothing yet", pod(always, "a b"), nil, nil, false, v1.PodPending},
		{"one of two runs", pod(always, "a b"), seen("a:running"), nil, false, v1.PodPending},
		{"all run", pod(always, "a b"), seen("a:running b:running"), nil, false, v1.PodRunning},
		{"created", pod(always, "a"), seen("a:created"), nil, false, v1.PodPending},
		{"cannot pull", pod(always, "a"), seen(""), wait("a", reason.ErrImagePull), false, v1.PodPending},
		{"crash loop", pod(always, "a"), seen("a:1"), wait("a", reason.CrashLoopBackOff), false, v1.PodRunning},
		{"one crashed, one runs", pod(never, "a b"), seen("a:1 b:running"), nil, false, v1.PodRunning},

		{"Always, all ended well", pod(always, "a b"), seen("a:0 b:0"), nil, false, v1.PodRunning},
		{"OnFailure, all ended well", pod(onFailure, "a b"), seen("a:0 b:0"), nil, false, v1.PodSucceeded},
		{"Never, all ended well", pod(never, "a b"), seen("a:0 b:0"), nil, false, v1.PodSucceeded},
		{"Always, one failed", pod(always, "a b"), seen("a:1 b:0"), nil, false, v1.PodRunning},
		{"OnFailure, one failed", pod(onFailure, "a b"), seen("a:1 b:0"), nil, false, v1.PodRunning},
		{"Never, one failed", pod(never, "a b"), seen("a:1 b:0"), nil, false, v1.PodFailed},
		{"Always, stopped for good", pod(always, "a b"), seen("dead a:0 b:0"), nil, true, v1.PodSucceeded},
		{"Always, stopped for good, one killed", pod(always, "a b"), seen("dead a:137 b:0"), nil, true, v1.PodFailed},
		{"a static pod may come back", pod(always, "a", static), seen("dead a:137"), nil, true, v1.PodRunning},
		{"a static pod that ran once", pod(never, "a", static), seen("dead a:0"), nil, true, v1.PodSucceeded},

		{"init pending", pod(always, "a", withInit("i")), seen("i:running"), nil, false, v1.PodPending},
		{"init done, regular not made", pod(always, "a", withInit("i")), seen("i:0"), nil, false, v1.PodPending},
		{"init done, regular runs", pod(always, "a", withInit("i")), seen("a:running i:0"), nil, false, v1.PodRunning},
		{"init failed, Never", pod(never, "a", withInit("i j")), seen("i:1"), nil, false, v1.PodFailed},
		{"init failed, Always", pod(always, "a", withInit("i")), seen("i:1"), wait("i", reason.CrashLoopBackOff), false, v1.PodPending},
		{"init forgotten by the runtime", pod(always, "a", withInit("i")), seen("a:running"), nil, false, v1.PodRunning},
		{"sidecar runs, init pending", pod(always, "a", withInit("s* i")), seen("s:running"), nil, false, v1.PodPending},
		{"sidecar and regular run", pod(always, "a", withInit("s*")), seen("a:running s:running"), nil, false, v1.PodRunning},
		{"regular done, sidecar runs", pod(never, "a", withInit("s*")), seen("a:0 s:running"), nil, false, v1.PodRunning},
		{"regular done, sidecar ended", pod(never, "a", withInit("s*")), seen("dead a:0 s:137"), nil, false, v1.PodSucceeded},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := Compute(Input{Pod: test.pod, Observed: test.observed, Waits: test.waits, Ended: test.ended, Now: now})
			if got.Phase != test.want {
				t.Errorf("phase = %s, want %s", got.Phase, test.want)
			}
		})
	}
}

func TestPhaseStays(t *testing.T) {
	previous := v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "disk"}
	got := Compute(Input{Pod: pod(v1.RestartPolicyAlways, "a"), Observed: seen("a:running"), Previous: previous, Now: now})
	if got.Phase != v1.PodFailed || got.Reason != "Evicted" || got.Message != "disk" {
		t.Errorf("left its last phase: %s %s %s", got.Phase, got.Reason, got.Message)
	}
	api := pod(v1.RestartPolicyAlways, "a")
	api.Status.Phase = v1.PodSucceeded
	if got := Compute(Input{Pod: api, Observed: seen("a:running"), Now: now}); got.Phase != v1.PodSucceeded {
		t.Errorf("left the last phase that the API has: %s", got.Phase)
	}
	running := v1.PodStatus{Phase: v1.PodRunning, Reason: "Odd", Message: "kept with the phase"}
	got = Compute(Input{Pod: pod(v1.RestartPolicyAlways, "a"), Observed: seen("a:running"), Previous: running, Now: now})
	if got.Reason != "Odd" {
		t.Errorf("reason of the same phase was lost")
	}
}

func TestActiveDeadline(t *testing.T) {
	p := pod(v1.RestartPolicyAlways, "a", func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(30)) })
	for after, want := range map[time.Duration]v1.PodPhase{29 * time.Second: v1.PodRunning, 30 * time.Second: v1.PodFailed} {
		start := metav1.NewTime(now.Add(-after))
		got := Compute(Input{Pod: p, Observed: seen("a:running"), Previous: v1.PodStatus{StartTime: &start}, Now: now})
		if got.Phase != want {
			t.Errorf("after %v: %s, want %s", after, got.Phase, want)
		}
		if want == v1.PodFailed && got.Reason != "DeadlineExceeded" {
			t.Errorf("reason = %q", got.Reason)
		}
	}
}

// TestGolden compares whole statuses. Each is computed twice, the second time
// with the first as what was told before, a minute later: nothing may change.
func TestGolden(t *testing.T) {
	hostNetwork := func(p *v1.Pod) { p.Spec.HostNetwork = true }
	gate := func(p *v1.Pod) { p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb"}} }
	ran := Compute(Input{Pod: pod(v1.RestartPolicyAlways, "a b"), Observed: seen("a:running b:running"), Runtime: "containerd", Now: now.Add(-time.Hour)})
	tests := map[string]Input{
		"pending":      {Pod: pod(v1.RestartPolicyAlways, "b a")},
		"pull":         {Pod: pod(v1.RestartPolicyAlways, "a"), Observed: seen(""), Waits: wait("a", reason.ImagePullBackOff)},
		"running":      {Pod: pod(v1.RestartPolicyAlways, "b a"), Observed: seen("a:running b:running")},
		"crash_loop":   {Pod: pod(v1.RestartPolicyAlways, "a b"), Observed: seen("a:1 a:2 b:running"), Waits: wait("a", reason.CrashLoopBackOff)},
		"init":         {Pod: pod(v1.RestartPolicyAlways, "a", withInit("i j")), Observed: seen("i:0 j:running")},
		"succeeded":    {Pod: pod(v1.RestartPolicyNever, "a"), Observed: seen("dead a:0")},
		"failed":       {Pod: pod(v1.RestartPolicyNever, "a b"), Observed: seen("dead a:3 b:0")},
		"host_network": {Pod: pod(v1.RestartPolicyAlways, "a", hostNetwork), Observed: seen("-")},
		"gate": {
			Pod: pod(v1.RestartPolicyAlways, "a", gate), Observed: seen("a:running"),
			Others: []v1.PodCondition{{Type: "lb", Status: v1.ConditionFalse}, {Type: v1.PodReady, Status: v1.ConditionTrue}},
		},
		"lost":          {Pod: pod(v1.RestartPolicyAlways, "a b"), Observed: seen("b:running"), Previous: ran},
		"lost_deleting": {Pod: pod(v1.RestartPolicyAlways, "a b", deleting), Observed: seen("-"), Previous: ran},
		"unknown":       {Pod: pod(v1.RestartPolicyNever, "a b"), Observed: seen("a:unknown b:running"), Previous: ran},
		"sandbox_died":  {Pod: pod(v1.RestartPolicyAlways, "a b"), Observed: seen("dead a:137 b:137"), Previous: ran},
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			in.Now, in.Runtime, in.HostIPs = now, "containerd", []string{"192.0.2.1", "2001:db8::1"}
			status := Compute(in)
			got, err := yaml.Marshal(status)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if name == "unknown" {
				return // the runtime gives such a container up; what it was is then in the status
			}
			in.Previous, in.Now = status, now.Add(time.Minute)
			if diff := cmp.Diff(status, Compute(in)); diff != "" {
				t.Errorf("changes though nothing happened (-first +second):\n%s", diff)
			}
		})
	}
}

func TestTransitionTimes(t *testing.T) {
	p := pod(v1.RestartPolicyAlways, "a")
	first := Compute(Input{Pod: p, Now: now})
	second := Compute(Input{Pod: p, Observed: seen("a:running"), Previous: first, Now: now.Add(time.Minute)})
	then, later := metav1.NewTime(now).Rfc3339Copy(), metav1.NewTime(now.Add(time.Minute)).Rfc3339Copy()
	for i, want := range []struct {
		condition v1.PodConditionType
		at        metav1.Time
	}{
		{v1.PodReadyToStartContainers, later},
		{v1.PodInitialized, then},
		{v1.PodReady, later},
		{v1.ContainersReady, later},
		{v1.PodScheduled, then},
	} {
		c := second.Conditions[i]
		if c.Type != want.condition || !c.LastTransitionTime.Equal(&want.at) || c.Status != v1.ConditionTrue {
			t.Errorf("condition %d = %s %s at %v; want %s True at %v", i, c.Type, c.Status, c.LastTransitionTime, want.condition, want.at)
		}
	}
	if !second.StartTime.Equal(&then) {
		t.Errorf("start time moved to %v", second.StartTime)
	}
}

// results are probe results by container ID.
type results struct{ startup, readiness map[string]bool }

func (r results) Startup(id string) (healthy, known bool) {
	healthy, known = r.startup[id]
	return
}

func (r results) Readiness(id string) (healthy, known bool) {
	healthy, known = r.readiness[id]
	return
}

func TestProbes(t *testing.T) {
	p := pod(v1.RestartPolicyAlways, "a")
	p.Spec.Containers[0].StartupProbe = &v1.Probe{}
	p.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
	was := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
		Name: "a", ContainerID: "containerd://a-0", Started: new(true), Ready: true,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
	}}}
	other := *was.DeepCopy()
	other.ContainerStatuses[0].ContainerID = "containerd://older"
	yes, no := map[string]bool{"a-0": true}, map[string]bool{"a-0": false}
	tests := []struct {
		name           string
		probes         prober
		previous       v1.PodStatus
		started, ready bool
	}{
		{"no prober", nil, v1.PodStatus{}, true, true},
		{"no results", results{}, v1.PodStatus{}, false, false},
		{"started only", results{startup: yes}, v1.PodStatus{}, true, false},
		{"ready", results{startup: yes, readiness: yes}, v1.PodStatus{}, true, true},
		{"not started counts more", results{startup: no, readiness: yes}, v1.PodStatus{}, false, false},
		{"not ready", results{startup: yes, readiness: no}, was, true, false},
		{"agent restarted, no results yet", results{}, was, true, true},
		{"no results of a new container", results{}, other, false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := Compute(Input{
				Pod: p, Observed: seen("a:running"), Probes: test.probes, Previous: test.previous, Runtime: "containerd", Now: now,
			}).ContainerStatuses[0]
			if *got.Started != test.started || got.Ready != test.ready {
				t.Errorf("started %v, ready %v; want %v, %v", *got.Started, got.Ready, test.started, test.ready)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	tests := []struct {
		name      string
		host, pod []string
		onHost    bool
		want      []string
	}{
		{"one", []string{"192.0.2.1"}, []string{"10.0.0.1"}, false, []string{"10.0.0.1"}},
		{"order of the node's families", []string{"2001:db8::1"}, []string{"10.0.0.1", "fd00::5"}, false, []string{"fd00::5", "10.0.0.1"}},
		{"one of each family", []string{"192.0.2.1"}, []string{"10.0.0.1", "10.0.0.2", "fd00::5"}, false, []string{"10.0.0.1", "fd00::5"}},
		{"host network", []string{"192.0.2.1"}, nil, true, []string{"192.0.2.1"}},
		{"nothing known", nil, nil, false, nil},
		{"nonsense", nil, []string{"pod"}, false, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := pod(v1.RestartPolicyAlways, "a", func(p *v1.Pod) { p.Spec.HostNetwork = test.onHost })
			s := Compute(Input{Pod: p, Observed: &observed.Status{IPs: test.pod}, HostIPs: test.host, Now: now})
			var got []string
			for _, ip := range s.PodIPs {
				got = append(got, ip.IP)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("pod IPs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAddressesOfWhatEnded(t *testing.T) {
	p := pod(v1.RestartPolicyNever, "a")
	had := v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}}
	for _, ended := range []bool{false, true} {
		s := Compute(Input{Pod: p, Observed: &observed.Status{}, Previous: had, Ended: ended, Now: now})
		if got := s.PodIP != "" && len(s.PodIPs) == 1; got != ended {
			t.Errorf("ended %v: got addresses %v", ended, s.PodIPs)
		}
	}
}

func TestLongMessages(t *testing.T) {
	o := seen("a:1 b:1 c:1")
	for i := range o.Containers {
		o.Containers[i].Message = strings.Repeat("x", 10_000)
	}
	s := Compute(Input{Pod: pod(v1.RestartPolicyNever, "a b c"), Observed: o, Now: now})
	for _, c := range s.ContainerStatuses {
		if got := len(c.State.Terminated.Message); got != 12*1024/3 {
			t.Errorf("message of %s has %d bytes", c.Name, got)
		}
	}
	if len(o.Containers[0].Message) != 10_000 {
		t.Error("changed what it was given")
	}
}

func TestFinal(t *testing.T) {
	compute := func(p *v1.Pod, o *observed.Status) v1.PodStatus {
		return Compute(Input{Pod: p, Observed: o, Now: now})
	}
	running := pod(v1.RestartPolicyAlways, "a")
	inits := pod(v1.RestartPolicyAlways, "a", withInit("i j"))
	done := pod(v1.RestartPolicyNever, "a")
	fixed := pod(v1.RestartPolicyAlways, "a", static)
	tests := []struct {
		name   string
		pod    *v1.Pod
		status v1.PodStatus
		want   string // phase, init states, regular states, readiness
	}{
		{"known to have ended", done, compute(done, seen("dead a:0")), "Succeeded [] [0] PodCompleted"},
		{"was running when last seen", running, compute(running, seen("a:running")), "Failed [] [137] PodFailed"},
		{"never started", running, compute(running, nil), "Failed [] [137] PodFailed"},
		{"in the middle of init", inits, compute(inits, seen("i:running")), "Failed [137 waiting] [waiting] PodFailed"},
		{"static", fixed, compute(fixed, seen("dead a:0")), "Running [] [0] ContainersNotReady"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before, _ := json.Marshal(test.status)
			s := final(test.pod, &test.status, metav1.NewTime(now))
			got := fmt.Sprintf("%s %v %v %s", s.Phase, ends(s.InitContainerStatuses), ends(s.ContainerStatuses), s.Conditions[2].Reason)
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if s.Conditions[2].Type != v1.PodReady || s.Conditions[2].Status != v1.ConditionFalse {
				t.Errorf("condition = %+v", s.Conditions[2])
			}
			if after, _ := json.Marshal(test.status); string(before) != string(after) {
				t.Error("changed what it was given")
			}
		})
	}
}

func ends(statuses []v1.ContainerStatus) []string {
	got := []string{}
	for _, s := range statuses {
		if s.State.Terminated != nil {
			got = append(got, fmt.Sprint(s.State.Terminated.ExitCode))
		} else {
			got = append(got, "waiting")
		}
	}
	return got
}

// TestResize holds that the status tells of a resize that waits and of one that
// is being done, of what the containers have until it is, and of nothing of it
// once the pod has ended.
func TestResize(t *testing.T) {
	memory := func(size string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(size)}
			p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
		}
	}
	sizes := func(s v1.PodStatus) string {
		c := s.ContainerStatuses[0]
		return c.AllocatedResources.Memory().String() + " " + c.Resources.Limits.Memory().String()
	}
	in := Input{Pod: pod(v1.RestartPolicyNever, "a", memory("64Mi")), Observed: seen("a:running"), Now: now}
	in.Pending = &allocation.Pending{Reason: v1.PodReasonDeferred, Message: "no room", Generation: 7}
	got := Compute(in)
	_, c := podutil.GetPodCondition(&got, v1.PodResizePending)
	if c == nil || c.Status != v1.ConditionTrue || c.Reason != v1.PodReasonDeferred || c.Message != "no room" || c.ObservedGeneration != 7 {
		t.Errorf("pending: %+v", c)
	}
	if got := sizes(got); got != "64Mi 64Mi" {
		t.Errorf("allocated and had: %s", got)
	}

	in.Pod, in.Previous, in.Others = pod(v1.RestartPolicyNever, "a", memory("1Gi")), got, got.Conditions
	in.Pending, in.Progress = nil, &allocation.Progress{Generation: 8}
	granted := Compute(in)
	if _, c := podutil.GetPodCondition(&granted, v1.PodResizePending); c != nil {
		t.Errorf("granted, and pending: %+v", c)
	}
	if _, c := podutil.GetPodCondition(&granted, v1.PodResizeInProgress); c == nil || c.Reason != "" || c.ObservedGeneration != 8 {
		t.Errorf("in progress: %+v", c)
	}
	if got := sizes(granted); got != "1Gi 64Mi" {
		t.Errorf("allocated and had: %s", got)
	}

	in.Previous, in.Progress = granted, &allocation.Progress{Error: "in use", Generation: 8}
	fails := Compute(in)
	if _, c := podutil.GetPodCondition(&fails, v1.PodResizeInProgress); c == nil || c.Reason != v1.PodReasonError || c.Message != "in use" {
		t.Errorf("fails: %+v", c)
	}

	in.Previous, in.Progress = fails, nil
	done := Compute(in)
	if got := sizes(done); got != "1Gi 1Gi" || len(done.Conditions) != 5 {
		t.Errorf("done: %s, %+v", got, done.Conditions)
	}
	in.Progress, in.Pending, in.Observed = &allocation.Progress{}, &allocation.Pending{}, seen("dead a:0")
	if ended := Compute(in); len(ended.Conditions) != 5 {
		t.Errorf("ended: %+v", ended.Conditions)
	}
}

func TestResourcesOfThePod(t *testing.T) {
	p := pod(v1.RestartPolicyAlways, "a")
	if s := Compute(Input{Pod: p, Now: now}); s.Resources != nil || s.AllocatedResources != nil {
		t.Errorf("got %v, %v", s.Resources, s.AllocatedResources)
	}
	p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}
	s := Compute(Input{Pod: p, Now: now})
	if diff := cmp.Diff(s.Resources, p.Spec.Resources); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	if diff := cmp.Diff(s.AllocatedResources, p.Spec.Resources.Requests); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
}

// Nothing remembers when a static pod started but what runs of it.
func TestStartTimeOfAnAdoptedPod(t *testing.T) {
	before := now.Add(-time.Hour).Truncate(time.Second)
	status := seen("a:running")
	status.Sandboxes = []*runtimeapi.PodSandboxStatus{
		{Id: "new", CreatedAt: before.Add(time.Minute).UnixNano()}, {Id: "old", CreatedAt: before.UnixNano()}, {Id: "unknown"},
	}
	got := Compute(Input{Pod: pod(v1.RestartPolicyAlways, "a"), Observed: status, Now: now})
	if !got.StartTime.Time.Equal(before) {
		t.Errorf("got %v, want when the oldest sandbox was made, %v", got.StartTime, before)
	}
}
