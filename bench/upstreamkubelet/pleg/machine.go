package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// perPod is how many containers a pod has, beside its sandbox.
const perPod = 3

// A machine is a runtime in memory, without a wire. Its answers are made when
// something changes, which is not measured, in the nouns of each side.
type machine struct {
	mu      sync.Mutex    // guards the fields below
	inspect time.Duration // that the inspection of a pod takes
	uids    []types.UID
	running map[types.UID]bool // whether the first container does

	listed    []observed.Pod // answers for ours
	inspected map[types.UID]*observed.Status
	upListed  []*kubecontainer.Pod // answers for upstream
	upStatus  map[types.UID]*kubecontainer.PodStatus
	index     map[types.UID]int
}

func newMachine(pods int) *machine {
	m := &machine{
		running: map[types.UID]bool{}, index: map[types.UID]int{},
		inspected: map[types.UID]*observed.Status{}, upStatus: map[types.UID]*kubecontainer.PodStatus{},
		listed: make([]observed.Pod, pods), upListed: make([]*kubecontainer.Pod, pods),
	}
	for i := range pods {
		uid := types.UID(fmt.Sprintf("0b8a2f1c-4d6e-4f7a-9b0c-%012d", i))
		m.uids = append(m.uids, uid)
		m.index[uid] = i
		m.running[uid] = true
		m.describe(uid)
	}
	return m
}

func (m *machine) setInspect(takes time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inspect = takes
}

// change has the first container of some pods end, or start again.
func (m *machine) change(pods int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range m.uids[:pods] {
		m.running[uid] = !m.running[uid]
		m.describe(uid)
	}
}

// describe makes the answers about a pod. What was answered before stays as it
// was: both sides may keep it.
func (m *machine) describe(uid types.UID) {
	i, name := m.index[uid], "pod-"+string(uid)
	sandbox := string(uid) + "-sandbox"
	ours := observed.Pod{UID: uid, Name: name, Namespace: "default", Sandboxes: []observed.Sandbox{{ID: sandbox, State: observed.Running}}}
	status := &observed.Status{
		UID: uid, Name: name, Namespace: "default", IPs: []string{"10.88.0.7"},
		Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: sandbox, State: runtimeapi.PodSandboxState_SANDBOX_READY}},
	}
	upstream := &kubecontainer.Pod{ID: uid, Name: name, Namespace: "default", Sandboxes: []*kubecontainer.Container{{
		ID: kubecontainer.ContainerID{Type: "containerd", ID: sandbox}, State: kubecontainer.ContainerStateRunning,
	}}}
	upStatus := &kubecontainer.PodStatus{ID: uid, Name: name, Namespace: "default", IPs: status.IPs, SandboxStatuses: status.Sandboxes}
	for c := range perPod {
		id, container := fmt.Sprintf("%s-%d", uid, c), fmt.Sprintf("container-%d", c)
		state, upState := observed.Running, kubecontainer.ContainerStateRunning
		if c == 0 && !m.running[uid] {
			state, upState = observed.Exited, kubecontainer.ContainerStateExited
		}
		upID := kubecontainer.ContainerID{Type: "containerd", ID: id}
		ours.Containers = append(ours.Containers, observed.Container{ID: id, Name: container, SandboxID: sandbox, State: state})
		status.Containers = append(status.Containers, observed.ContainerStatus{ID: id, Name: container, SandboxID: sandbox, State: state})
		upstream.Containers = append(upstream.Containers, &kubecontainer.Container{ID: upID, Name: container, State: upState})
		upStatus.ContainerStatuses = append(upStatus.ContainerStatuses, &kubecontainer.Status{ID: upID, Name: container, State: upState})
	}
	m.listed[i], m.inspected[uid], m.upListed[i], m.upStatus[uid] = ours, status, upstream, upStatus
}

// wait takes as long as an inspection does.
func (m *machine) wait(ctx context.Context) error {
	m.mu.Lock()
	takes := m.inspect
	m.mu.Unlock()
	if takes == 0 {
		return nil
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
