package podsync

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// planPod returns a pod from a line such as "Always: init i1 sidecar s1 a b".
func planPod(line string) *v1.Pod {
	policy, rest, _ := strings.Cut(line, ":")
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicy(policy)},
	}
	kind := ""
	for word := range strings.FieldsSeq(rest) {
		c := v1.Container{Name: word, Image: "img"}
		switch {
		case word == "init" || word == "sidecar" || word == "ephemeral":
			kind = word
			continue
		case kind == "sidecar":
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
			fallthrough
		case kind == "init":
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case kind == "ephemeral":
			pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon(c), TargetContainerName: "a"})
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
		kind = ""
	}
	return pod
}

// planStatus returns a status from words such as "s0:ready a=running b=exit1
// i@s0=exit0", newest first: sandboxes are s and their attempt; a container
// stands in the newest sandbox unless it says otherwise.
func planStatus(pod *v1.Pod, line string) *observed.Status {
	st := &observed.Status{UID: pod.UID}
	for n, word := range strings.Fields(line) {
		if name, state, ok := strings.Cut(word, ":"); ok {
			s := &runtimeapi.PodSandboxStatus{
				Id: name, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
				Metadata: &runtimeapi.PodSandboxMetadata{Attempt: uint32(name[1] - '0')},
				Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.2"},
			}
			switch state {
			case "ready":
				s.State = runtimeapi.PodSandboxState_SANDBOX_READY
			case "noip":
				s.State, s.Network.Ip = runtimeapi.PodSandboxState_SANDBOX_READY, ""
			case "host":
				s.State = runtimeapi.PodSandboxState_SANDBOX_READY
				s.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}}
			}
			st.Sandboxes = append(st.Sandboxes, s)
			continue
		}
		name, state, _ := strings.Cut(word, "=")
		name, sandbox, ok := strings.Cut(name, "@")
		if !ok && len(st.Sandboxes) > 0 {
			sandbox = st.Sandboxes[0].GetId()
		}
		c := observed.ContainerStatus{ID: fmt.Sprintf("%s-%d", name, n), Name: name, SandboxID: sandbox}
		if spec := podfiles.Container(pod, name); spec != nil {
			c.Hash = podfiles.Hash(spec)
		}
		switch {
		case state == "changed":
			c.State, c.Hash = observed.Running, "old"
		case strings.HasPrefix(state, "exit"):
			code, err := strconv.ParseInt(state[len("exit"):], 10, 32)
			if err != nil {
				panic(err) // the table is wrong
			}
			c.State, c.ExitCode, c.FinishedAt = observed.Exited, int32(code), epoch
		default:
			c.State = observed.State(state)
		}
		st.Containers = append(st.Containers, c)
	}
	return st
}

// show writes actions as one line.
func show(a actions) string {
	var out []string
	if a.killPod {
		out = append(out, "killPod")
	}
	for _, k := range a.kills {
		out = append(out, fmt.Sprintf("kill %s (%s)", k.id, k.message))
	}
	for _, c := range a.removals.containers {
		out = append(out, "remove "+c.ID)
	}
	for _, s := range a.removals.sandboxes {
		out = append(out, "remove "+s)
	}
	if a.createSandbox {
		out = append(out, fmt.Sprintf("sandbox %d", a.attempt))
	}
	for _, s := range a.starts {
		word := "start "
		if !s.until.IsZero() {
			word = "wait "
		}
		out = append(out, word+s.container.Name)
	}
	return strings.Join(out, ", ")
}

// planProbes are probe results by container ID: "live", "dead", "started",
// "stuck".
type planProbes struct {
	noProbes
	results map[string]string
}

func (p planProbes) Liveness(id string) (healthy, known bool) {
	return p.results[id] == "live", p.results[id] == "live" || p.results[id] == "dead"
}

func (p planProbes) Startup(id string) (healthy, known bool) {
	return p.results[id] != "stuck", p.results[id] != ""
}

type planPauses map[string]time.Duration

func (p planPauses) until(what string, failed time.Time) (time.Time, time.Duration) {
	name, _, _ := strings.Cut(what, "/")
	if d, ok := p[name]; ok {
		return failed.Add(d), d
	}
	return time.Time{}, 0
}

func TestPlan(t *testing.T) {
	tests := []struct {
		name, pod, status string
		change            func(*v1.Pod)
		probes            map[string]string
		pauses            planPauses
		want              string
	}{
		// Sandboxes.
		{name: "new pod", pod: "Always: a b", want: "sandbox 0, start a, start b"},
		{name: "sandbox alone", pod: "Always: a b", status: "s0:ready", want: "start a, start b"},
		{name: "all well", pod: "Always: a b", status: "s0:ready a=running b=running", want: ""},
		{name: "sandbox died", pod: "Always: a", status: "s0:dead a=exit137", want: "killPod, sandbox 1, start a"},
		{name: "sandbox died, containers run", pod: "Always: a", status: "s3:dead a=running", want: "killPod, sandbox 4, start a"},
		{name: "sandbox without address", pod: "Always: a", status: "s0:noip a=running", want: "killPod, sandbox 1, start a"},
		{name: "sandbox on the wrong network", pod: "Always: a", status: "s0:host a=running", want: "killPod, sandbox 1, start a"},
		{name: "host network has no address", pod: "Always: a", change: func(p *v1.Pod) { p.Spec.HostNetwork = true }, status: "s0:host a=running", want: ""},
		{name: "two sandboxes", pod: "Always: a", status: "s1:ready s0:ready a=running", want: "killPod, sandbox 2, start a"},
		{name: "old sandbox goes", pod: "Always: a", status: "s1:ready s0:dead a=running", want: "remove s0"},
		{name: "old sandbox whose container is kept stays", pod: "Always: a", status: "s1:ready s0:dead a=running a@s0=exit1", want: ""},
		{name: "Never: not again in a new sandbox", pod: "Never: a b", status: "s0:dead a=exit0 b=running", want: "killPod"},
		{name: "Never: a sandbox that never held a container", pod: "Never: a", status: "s0:dead", want: "killPod, sandbox 1, start a"},
		{name: "OnFailure: only what failed", pod: "OnFailure: a b", status: "s0:dead a=exit0 b=exit1", want: "killPod, sandbox 1, start b"},
		{name: "OnFailure: all done", pod: "OnFailure: a b", status: "s0:dead a=exit0 b=exit0", want: "killPod"},
		{
			name: "Never, but one container restarts", pod: "Never: a b", status: "s0:dead a=exit0 b=exit1",
			change: func(p *v1.Pod) { p.Spec.Containers[1].RestartPolicy = new(v1.ContainerRestartPolicyOnFailure) },
			want:   "killPod, sandbox 1, start b",
		},

		// Restart policies.
		{name: "Always: exit 0", pod: "Always: a b", status: "s0:ready a=exit0 b=running", want: "start a"},
		{name: "OnFailure: exit 0", pod: "OnFailure: a b", status: "s0:ready a=exit0 b=running", want: ""},
		{name: "OnFailure: exit 1", pod: "OnFailure: a b", status: "s0:ready a=exit1 b=running", want: "start a"},
		{name: "Never: exit 1", pod: "Never: a b", status: "s0:ready a=exit1 b=running", want: ""},
		{name: "Never: all ended", pod: "Never: a b", status: "s0:ready a=exit1 b=exit0", want: "killPod"},
		{
			name: "a rule for an exit code", pod: "Never: a", status: "s0:ready a=exit42",
			change: func(p *v1.Pod) {
				c := &p.Spec.Containers[0]
				c.RestartPolicy = new(v1.ContainerRestartPolicyNever)
				c.RestartPolicyRules = []v1.ContainerRestartRule{{
					Action:    v1.ContainerRestartRuleActionRestart,
					ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
				}}
			},
			want: "start a",
		},
		{name: "being deleted", pod: "Always: a b", status: "s0:ready a=exit1 b=running", change: func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: epoch} }, want: ""},
		{name: "created and never started", pod: "Always: a", status: "s0:ready a=created", want: "remove a-1, start a"},
		{name: "unknown", pod: "Always: a", status: "s0:ready a=unknown", want: `kill a-1 (Container is in "unknown" state, try killing it before restart), start a`},
		{name: "only the newest dead stays", pod: "Always: a", status: "s0:ready a=running a=exit1 a=exit2 a=exit3", want: "remove a-3, remove a-4"},

		// Changes and probes.
		{name: "image changed", pod: "Never: a b", status: "s0:ready a=changed b=running", want: "kill a-1 (Container a definition changed, will be restarted), start a"},
		{
			name: "liveness", pod: "Always: a", status: "s0:ready a=running", probes: map[string]string{"a-1": "dead"},
			want: "kill a-1 (Container a failed liveness probe, will be restarted), start a",
		},
		{name: "liveness, Never", pod: "Never: a b", status: "s0:ready a=running b=running", probes: map[string]string{"a-1": "dead"}, want: "kill a-1 (Container a failed liveness probe)"},
		{name: "liveness, Never, the last", pod: "Never: a", status: "s0:ready a=running", probes: map[string]string{"a-1": "dead"}, want: "killPod"},
		{
			name: "startup", pod: "Always: a", status: "s0:ready a=running", probes: map[string]string{"a-1": "stuck"},
			change: func(p *v1.Pod) { p.Spec.Containers[0].StartupProbe = &v1.Probe{} },
			want:   "kill a-1 (Container a failed startup probe, will be restarted), start a",
		},

		// Init containers.
		{name: "init first", pod: "Always: init i init j a", want: "sandbox 0, start i"},
		{name: "init runs", pod: "Always: init i init j a", status: "s0:ready i=running", want: ""},
		{name: "first done", pod: "Always: init i init j a", status: "s0:ready i=exit0", want: "start j"},
		{name: "all done", pod: "Always: init i init j a", status: "s0:ready j=exit0 i=exit0", want: "start a"},
		{name: "all done, first forgotten", pod: "Always: init i init j a", status: "s0:ready j=exit0", want: "start a"},
		{name: "init failed", pod: "OnFailure: init i a", status: "s0:ready i=exit1", want: "start i"},
		{name: "init failed, Never", pod: "Never: init i a", status: "s0:ready i=exit1", want: "killPod"},
		{name: "init unknown, OnFailure", pod: "OnFailure: init i a", status: "s0:ready i=unknown", want: `kill i-1 (Container is in "unknown" state, try killing it before restart), start i`},
		{name: "init created", pod: "Never: init i a", status: "s0:ready i=created", want: "remove i-1, start i"},
		{name: "init forgotten, container runs", pod: "Always: init i a b", status: "s0:ready a=running", want: "start b"},
		{name: "init again in a new sandbox", pod: "Always: init i a", status: "s0:dead a=exit1 i=exit0", want: "killPod, remove i-2, sandbox 1, start i"},
		{name: "init again, old container does not count", pod: "Always: init i a", status: "s1:ready s0:dead a@s0=exit1", want: "start i"},

		// Sidecars.
		{name: "sidecar first", pod: "Always: sidecar s a", want: "sandbox 0, start s"},
		{name: "sidecar runs", pod: "Always: sidecar s a", status: "s0:ready s=running", want: "start a"},
		{name: "sidecar runs, next init", pod: "Always: sidecar s init i a", status: "s0:ready s=running", want: "start i"},
		{name: "sidecar ended while an init runs", pod: "Always: sidecar s init i a", status: "s0:ready i=running s=exit0", want: "start s"},
		{name: "sidecar ended beside a container", pod: "Never: sidecar s a", status: "s0:ready a=running s=exit1", want: "start s"},
		{name: "sidecar forgotten", pod: "Always: sidecar s a", status: "s0:ready a=running", want: "start s"},
		{name: "sidecar alone", pod: "Never: sidecar s a", status: "s0:ready a=exit0 s=running", want: "killPod"},
		{name: "sidecar is not restarted for nobody", pod: "Never: sidecar s a", status: "s0:ready a=exit0 s=exit1", want: "killPod"},
		{
			name: "sidecar not started yet", pod: "Always: sidecar s a", status: "s0:ready s=running",
			change: func(p *v1.Pod) { p.Spec.InitContainers[0].StartupProbe = &v1.Probe{} }, want: "",
		},
		{
			name: "sidecar started", pod: "Always: sidecar s a", status: "s0:ready s=running", probes: map[string]string{"s-1": "started"},
			change: func(p *v1.Pod) { p.Spec.InitContainers[0].StartupProbe = &v1.Probe{} }, want: "start a",
		},
		{
			name: "sidecar that does not start", pod: "Always: sidecar s a", status: "s0:ready s=running", probes: map[string]string{"s-1": "stuck"},
			change: func(p *v1.Pod) { p.Spec.InitContainers[0].StartupProbe = &v1.Probe{} },
			want:   "kill s-1 (Init container s failed startup probe), start s",
		},
		{
			name: "sidecar dead", pod: "Always: sidecar s a", status: "s0:ready a=running s=running", probes: map[string]string{"s-2": "dead"},
			change: func(p *v1.Pod) { p.Spec.InitContainers[0].LivenessProbe = &v1.Probe{} },
			want:   "kill s-2 (Init container s failed liveness probe), start s",
		},
		{name: "sidecar changed while the next starts", pod: "Always: sidecar s init i a", status: "s0:ready s=changed", want: "kill s-1 (Init container s definition changed), start s, start i"},

		// Ephemeral containers.
		{name: "ephemeral once", pod: "Always: a ephemeral e", status: "s0:ready a=running", want: "start e"},
		{name: "ephemeral never again", pod: "Always: a ephemeral e", status: "s0:ready e=exit1 a=running", want: ""},
		{name: "ephemeral before init", pod: "Always: init i a ephemeral e", status: "s0:ready i=running", want: "start e"},

		// Back-off.
		{name: "in back-off", pod: "Always: a b", status: "s0:ready a=exit1 b=running", pauses: planPauses{"a": 10 * time.Second}, want: "wait a"},
		{name: "back-off over", pod: "Always: a b", status: "s0:ready a=exit1 b=running", pauses: planPauses{"a": 4 * time.Second}, want: "start a"},
		{name: "killed containers do not wait", pod: "Always: a", status: "s0:ready a=changed", pauses: planPauses{"a": time.Hour}, want: "kill a-1 (Container a definition changed, will be restarted), start a"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod := planPod(test.pod)
			if test.change != nil {
				test.change(pod)
			}
			status := planStatus(pod, test.status)
			got := plan(planInput{pod: pod, status: status, probes: planProbes{results: test.probes}, pauses: test.pauses, now: epoch.Add(5 * time.Second)})
			if diff := cmp.Diff(show(got), test.want); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
		})
	}
}

func TestPlanSaysWhyItWaits(t *testing.T) {
	pod := planPod("Always: a")
	got := plan(planInput{
		pod: pod, status: planStatus(pod, "s0:ready a=exit1"), probes: noProbes{}, pauses: planPauses{"a": 20 * time.Second}, now: epoch.Add(5 * time.Second),
	})
	if len(got.starts) != 1 {
		t.Fatalf("got %q, want one start", show(got))
	}
	s := got.starts[0]
	if want := epoch.Add(20 * time.Second); !s.until.Equal(want) {
		t.Errorf("waits until %v, want %v", s.until, want)
	}
	want := "CrashLoopBackOff: back-off 20s restarting failed container=a pod=p_ns(u)"
	if got := s.wait.Reason + ": " + s.wait.Message; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestBackoffIsForgotten: after reset, however long the longest pause is.
func TestBackoffIsForgotten(t *testing.T) {
	b := newBackoff(10*time.Second, 20*time.Second, 10*time.Minute)
	b.lengthen("u", "c", epoch, epoch)
	b.lengthen("u", "c", epoch.Add(9*time.Minute), epoch.Add(9*time.Minute))
	if _, pause := b.until("u", "c", epoch.Add(9*time.Minute+time.Second)); pause != 20*time.Second {
		t.Errorf("nine minutes later: got a pause of %v, want 20s", pause)
	}
	if _, pause := b.until("u", "c", epoch.Add(20*time.Minute)); pause != 0 {
		t.Errorf("more than ten minutes later: got a pause of %v, want none", pause)
	}
}

func TestBackoff(t *testing.T) {
	b := newBackoff(10*time.Second, 5*time.Minute, 10*time.Minute)
	now := epoch
	for i, seconds := range []int{0, 10, 20, 40, 80, 160, 300, 300} {
		want := time.Duration(seconds) * time.Second
		failed := now
		until, pause := b.until("u", "c", failed)
		if pause != want {
			t.Errorf("failure %d: got a pause of %v, want %v", i, pause, want)
		}
		now = failed
		if pause > 0 {
			now = until
		}
		b.lengthen("u", "c", failed, now)
		now = now.Add(time.Second)
	}
	if _, pause := b.until("u", "c", now.Add(10*time.Minute)); pause != 0 {
		t.Errorf("after ten good minutes: got a pause of %v, want none", pause)
	}
	if _, pause := b.until("other", "c", now); pause != 0 {
		t.Errorf("another pod: got a pause of %v, want none", pause)
	}
	b.forget("u")
	if _, pause := b.until("u", "c", now); pause != 0 {
		t.Errorf("forgotten: got a pause of %v, want none", pause)
	}
}
