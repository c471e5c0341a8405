package podsync

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// model is a pod and a runtime that does at once what a plan says.
type model struct {
	t      *testing.T
	pod    *v1.Pod
	status *observed.Status
	serial int
	passed map[string]bool // init containers that have ended well in this sandbox
	ended  map[string]bool // containers that have ended, and that the runtime remembers
}

// TestRandomPlans lets random things happen to random pods and holds what is
// true of every plan, and that plans come to an end.
func TestRandomPlans(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		policy := []string{"Always", "OnFailure", "Never"}[r.IntN(3)]
		containers := []string{"a", "a b"}[r.IntN(2)]
		inits := []string{"", "init i ", "sidecar s ", "init i sidecar s init j "}[r.IntN(4)]
		line := policy + ": " + inits + containers
		m := &model{t: t, pod: planPod(line), passed: map[string]bool{}, ended: map[string]bool{}}
		m.status = &observed.Status{UID: m.pod.UID}
		history := line
		for range 40 {
			history += "\n" + m.misfortune(r) + " → " + m.apply()
			if t.Failed() {
				t.Fatal(history)
			}
		}
		m.settle(history)
	}
}

// misfortune makes something happen, and says what.
func (m *model) misfortune(r *rand.Rand) string {
	what := r.IntN(6)
	if what == 0 && len(m.status.Sandboxes) > 0 {
		m.status.Sandboxes[0].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		for i := range m.status.Containers {
			if c := &m.status.Containers[i]; c.State == observed.Running {
				c.State, c.ExitCode = observed.Exited, 137
				m.ended[c.Name] = true
			}
		}
		return "the sandbox dies"
	}
	if len(m.status.Containers) == 0 {
		return "nothing"
	}
	i := r.IntN(len(m.status.Containers))
	c := &m.status.Containers[i]
	switch {
	case what == 1 && c.State != observed.Running:
		name := c.ID
		delete(m.ended, c.Name)
		m.status.Containers = slices.Delete(m.status.Containers, i, i+1)
		return name + " is forgotten"
	case what < 4 && c.State == observed.Running:
		c.State, c.ExitCode = observed.Exited, int32(what-2) //nolint:gosec // 0 or 1, or -1 for a signal
		m.passed[c.Name] = m.passed[c.Name] || c.ExitCode == 0
		m.ended[c.Name] = true
		return fmt.Sprintf("%s exits with %d", c.ID, c.ExitCode)
	case what == 4 && c.State == observed.Running:
		c.State = observed.Unknown
		return c.ID + " is lost from sight"
	default:
		return "nothing"
	}
}

// apply makes a plan, checks it and does it.
func (m *model) apply() string {
	m.t.Helper()
	acts := plan(planInput{pod: m.pod, status: m.status, probes: noProbes{}, pauses: planPauses{}, now: epoch})
	for i := range m.status.Containers {
		c := &m.status.Containers[i]
		killed := acts.killPod || slices.ContainsFunc(acts.kills, func(k kill) bool { return k.id == c.ID })
		if killed && (c.State == observed.Running || c.State == observed.Unknown) {
			c.State, c.ExitCode = observed.Exited, 143
		}
	}
	for _, dead := range acts.removals.containers {
		m.status.Containers = slices.DeleteFunc(m.status.Containers, func(c observed.ContainerStatus) bool {
			if c.ID == dead.ID && c.State != observed.Exited && c.State != observed.Created {
				m.t.Errorf("%s is removed and is %s", c.ID, c.State)
			}
			return c.ID == dead.ID
		})
	}
	m.status.Sandboxes = slices.DeleteFunc(m.status.Sandboxes, func(s *runtimeapi.PodSandboxStatus) bool {
		return slices.Contains(acts.removals.sandboxes, s.GetId())
	})
	if acts.killPod {
		for _, s := range m.status.Sandboxes {
			s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
	}
	if acts.createSandbox {
		m.passed = map[string]bool{}
		m.status.Sandboxes = slices.Insert(m.status.Sandboxes, 0, &runtimeapi.PodSandboxStatus{
			Id: fmt.Sprintf("s%d", acts.attempt), State: runtimeapi.PodSandboxState_SANDBOX_READY,
			Metadata: &runtimeapi.PodSandboxMetadata{Attempt: acts.attempt},
		})
	}
	for _, s := range acts.starts {
		m.start(s)
	}
	return show(acts)
}

// start starts a container, which may be neither twice nor too early.
func (m *model) start(s start) {
	m.t.Helper()
	name := s.container.Name
	if c := m.status.Container(name); c != nil && (c.State == observed.Running || c.State == observed.Unknown) {
		m.t.Errorf("%s is started and %s is %s", name, c.ID, c.State)
	}
	if m.pod.Spec.RestartPolicy == v1.RestartPolicyNever && !s.init && m.ended[name] {
		m.t.Errorf("%s is started again", name)
	}
	for i := range m.pod.Spec.InitContainers {
		before := &m.pod.Spec.InitContainers[i]
		if before.Name == name {
			break
		}
		// Whatever started after an init container in this sandbox proves that it was done.
		if !podfiles.IsSidecar(before) && !m.passed[before.Name] {
			m.t.Errorf("%s is started before %s has ended well", name, before.Name)
		}
	}
	m.serial++
	m.status.Containers = slices.Insert(m.status.Containers, 0, observed.ContainerStatus{
		ID: fmt.Sprintf("%s-%d", name, m.serial), Name: name, State: observed.Running, Hash: podfiles.Hash(s.container),
		SandboxID: m.status.Sandboxes[0].GetId(),
	})
}

// settle lets init containers end well and nothing else happen: the plans have
// to come to an end, with every container running or done.
func (m *model) settle(history string) {
	m.t.Helper()
	for range 12 {
		for i := range m.status.Containers {
			c := &m.status.Containers[i]
			spec := podfiles.Container(m.pod, c.Name)
			if c.State == observed.Running && isInit(m.pod, c.Name) && !podfiles.IsSidecar(spec) {
				c.State, c.ExitCode = observed.Exited, 0
				m.passed[c.Name] = true
			}
		}
		did := m.apply()
		history += "\nsettling → " + did
		if did == "" || did == "killPod" {
			break
		}
	}
	last := plan(planInput{pod: m.pod, status: m.status, probes: noProbes{}, pauses: planPauses{}, now: epoch})
	if got := show(last); got != "" && got != "killPod" {
		m.t.Fatalf("does not settle: %s\n%s", got, history)
	}
	if !last.killPod && len(last.starts) == 0 {
		for i := range m.pod.Spec.Containers {
			c := m.status.Container(m.pod.Spec.Containers[i].Name)
			if c == nil || c.State != observed.Running && m.pod.Spec.RestartPolicy == v1.RestartPolicyAlways {
				m.t.Fatalf("%s does not run:\n%s", m.pod.Spec.Containers[i].Name, history)
			}
		}
	}
}
