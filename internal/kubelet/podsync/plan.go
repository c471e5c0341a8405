package podsync

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// actions is what has to be done so that a pod's containers match its
// specification, in the order of the fields.
type actions struct {
	resets []observed.ContainerStatus // take these away, and do nothing else

	killPod  bool   // stop everything, the sandbox too
	kills    []kill // without killPod: stop these
	removals removals

	createSandbox bool
	changed       bool   // the sandbox replaces another
	sandboxID     string // the one to use, without createSandbox
	attempt       uint32 // the sandbox's

	resizes  []resize // in this order
	restarts bool     // some of the kills and starts are for a resize
	starts   []start  // in this order
}

// A resize changes what a running container may use.
type resize struct {
	id, name   string
	want, have *runtimeapi.LinuxContainerResources // have is nil where it is not known
}

// A kill stops a container.
type kill struct {
	id      string
	name    string
	message string
	probe   *v1.Probe // whose failure is the cause; nil: none
}

// A start starts a container, unless it has to pause until then.
type start struct {
	container *v1.Container
	init      bool // the next ones wait for it, unless it is a sidecar
	target    string
	previous  *observed.ContainerStatus // the newest one of that name, or nil

	until time.Time // zero: now
	wait  reason.Wait
}

// removals are the dead that nobody needs any more.
type removals struct {
	containers []observed.ContainerStatus
	sandboxes  []string
}

// pauses says until when a container that ended has to wait.
type pauses interface {
	until(what string, failed time.Time) (time.Time, time.Duration)
}

// plan decides what to do to a pod that is to run. It follows the upstream
// kubelet's rules of sandboxes, init containers, sidecars and restart policies.
func plan(in planInput) actions {
	if in.restartAll {
		return actions{resets: resets(in.pod, in.status)}
	}
	p := planner{pod: in.pod, status: in.status, probes: in.probes, sizes: in.sizes}
	p.sandbox()
	if p.out.createSandbox || p.out.killPod {
		p.fresh()
	} else {
		p.ephemeral()
		if p.initialize() {
			p.regular()
		}
	}
	p.out.removals = deadOnes(in.pod, in.status, p.out)
	for i := range p.out.starts {
		pause(in.pod, &p.out.starts[i], in.pauses, in.now)
	}
	sortResizes(p.out.resizes)
	return p.out
}

// A planInput is all that a plan is made from.
type planInput struct {
	pod    *v1.Pod
	status *observed.Status
	probes results
	pauses pauses
	sizes  sizes
	now    time.Time

	restartAll bool // the pod starts again from the beginning, in its sandbox
}

type planner struct {
	sizes  sizes
	pod    *v1.Pod
	status *observed.Status
	probes results
	out    actions
}

// sandbox decides whether the pod needs a new sandbox: it has none, none that
// is ready, several that are, one in the wrong network, or one that lost its
// address.
func (p *planner) sandbox() {
	all := p.status.Sandboxes
	if len(all) == 0 {
		p.out.createSandbox = true
		return
	}
	newest, ready := all[0], 0
	for _, s := range all {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	p.out.sandboxID, p.out.attempt = newest.GetId(), newest.GetMetadata().GetAttempt()
	network := runtimeapi.NamespaceMode_POD
	if p.pod.Spec.HostNetwork {
		network = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case ready > 1,
		newest.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY,
		newest.GetLinux().GetNamespaces().GetOptions().GetNetwork() != network,
		!p.pod.Spec.HostNetwork && newest.GetNetwork() != nil && newest.GetNetwork().GetIp() == "":
		p.out.createSandbox, p.out.killPod, p.out.changed = true, true, true
		p.out.attempt++
	}
}

// fresh plans the first start in a new sandbox, or that there is none because
// the pod has done its work.
func (p *planner) fresh() {
	spec := &p.pod.Spec
	restartable := slices.ContainsFunc(spec.Containers, func(c v1.Container) bool { return podutil.IsContainerRestartable(*spec, c) })
	if !restartable && p.out.changed && len(p.status.Containers) > 0 {
		p.out.createSandbox = false
		return
	}
	var starts []start
	created := false
	for i := range spec.Containers {
		c := &spec.Containers[i]
		last := p.status.Container(c.Name)
		created = created || last != nil && last.State != observed.Unknown
		if last != nil && last.State == observed.Exited && !podutil.ContainerShouldRestart(*c, *spec, last.ExitCode) {
			continue
		}
		starts = append(starts, start{container: c, previous: last})
	}
	if len(starts) == 0 && created {
		p.out.createSandbox = false
		return
	}
	if len(spec.InitContainers) > 0 {
		c := &spec.InitContainers[0]
		starts = []start{{container: c, init: true, previous: p.status.Container(c.Name)}}
	}
	p.out.starts = starts
}

// ephemeral plans the ephemeral containers, which start once, whatever the
// others do.
func (p *planner) ephemeral() {
	for i := range p.pod.Spec.EphemeralContainers {
		e := &p.pod.Spec.EphemeralContainers[i]
		if p.status.Container(e.Name) == nil {
			c := (*v1.Container)(&e.EphemeralContainerCommon)
			p.out.starts = append(p.out.starts, start{container: c, target: e.TargetContainerName})
		}
	}
}

// regular plans the regular containers of a pod whose init containers are done.
func (p *planner) regular() {
	keep, starting := 0, 0
	for i := range p.pod.Spec.Containers {
		c := &p.pod.Spec.Containers[i]
		last := p.status.Container(c.Name)
		if last == nil || last.State != observed.Running {
			if p.shouldStart(c, last) {
				p.start(c, last, false)
				starting++
			}
			continue
		}
		message, probe, restart := p.unfit(c, last)
		if message == "" {
			keep++
			continue
		}
		if restart {
			message += ", will be restarted"
			p.start(c, last, false)
			starting++
		}
		p.out.kills = append(p.out.kills, kill{id: last.ID, name: c.Name, message: message, probe: probe})
	}
	if keep == 0 && starting == 0 {
		// Nothing is left but sidecars, which must not keep the pod alive.
		p.out.killPod = true
		p.out.kills = nil
		p.out.starts = nil
	}
}

// start plans a start; one whose state is not known is stopped first, so that
// no two of a name run.
func (p *planner) start(c *v1.Container, last *observed.ContainerStatus, init bool) {
	if last != nil && last.State == observed.Unknown {
		p.out.kills = append(p.out.kills, kill{id: last.ID, name: c.Name, message: fmt.Sprintf("Container is in %q state, try killing it before restart", last.State)})
	}
	p.out.starts = append(p.out.starts, start{container: c, init: init, previous: last})
}

func (p *planner) shouldStart(c *v1.Container, last *observed.ContainerStatus) bool {
	switch {
	case p.pod.DeletionTimestamp != nil:
		return false
	case last == nil || last.State != observed.Exited:
		return true
	default:
		return podutil.ContainerShouldRestart(*c, p.pod.Spec, last.ExitCode)
	}
}

// unfit returns why a running container has to end, and whether it starts
// again; an empty message if it is fine.
func (p *planner) unfit(c *v1.Container, last *observed.ContainerStatus) (message string, probe *v1.Probe, restart bool) {
	restart = p.pod.Spec.RestartPolicy != v1.RestartPolicyNever
	if c.RestartPolicy != nil {
		restart = *c.RestartPolicy != v1.ContainerRestartPolicyNever
	}
	if last.Hash != podfiles.Hash(c) {
		return fmt.Sprintf("Container %s definition changed", c.Name), nil, true
	}
	if healthy, known := p.probes.Liveness(last.ID); known && !healthy {
		return fmt.Sprintf("Container %s failed liveness probe", c.Name), c.LivenessProbe, restart
	}
	if healthy, known := p.probes.Startup(last.ID); known && !healthy && c.StartupProbe != nil {
		return fmt.Sprintf("Container %s failed startup probe", c.Name), c.StartupProbe, restart
	}
	if p.resize(c, last) {
		return fmt.Sprintf(resizeRestartText, c.Name), nil, true
	}
	return "", nil, false
}

// initialize plans the init containers and reports whether all are done, or
// for a sidecar, started.
//
// It goes backwards: a later init container that was started proves that the
// earlier ones were done, even if the runtime has forgotten them.
func (p *planner) initialize() bool {
	list := p.pod.Spec.InitContainers
	if len(list) == 0 {
		return true
	}
	ephemeral := len(p.out.starts)
	done := slices.ContainsFunc(p.pod.Spec.Containers, func(c v1.Container) bool { return p.active(c.Name) != nil })
	passed := done // a later container has started
	for i := len(list) - 1; i >= 0; i-- {
		c, last := &list[i], p.active(list[i].Name)
		sidecar := podfiles.IsSidecar(c)
		switch {
		case last == nil:
			if passed && sidecar {
				p.start(c, p.status.Container(c.Name), true)
			}
			continue
		case passed && !sidecar:
			continue
		}
		ready, failed := p.initState(c, last)
		if failed {
			p.out.killPod, p.out.starts, p.out.kills = true, nil, nil
			return false
		}
		switch {
		case !ready:
		case i == len(list)-1:
			done = true
		case !passed:
			p.start(&list[i+1], p.status.Container(list[i+1].Name), true)
		}
		passed = true
	}
	if !passed {
		p.start(&list[0], p.status.Container(list[0].Name), true)
	}
	slices.SortStableFunc(p.out.starts[ephemeral:], func(a, b start) int { return p.index(a) - p.index(b) })
	return done
}

func (p *planner) index(s start) int {
	return slices.IndexFunc(p.pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == s.container.Name })
}

// initState plans what one init container needs. ready means that the next one
// may start, failed that the pod has failed with it.
func (p *planner) initState(c *v1.Container, last *observed.ContainerStatus) (ready, failed bool) {
	sidecar := podfiles.IsSidecar(c)
	again := true
	switch last.State {
	case observed.Running:
		if !sidecar {
			p.resize(c, last) // none of these may ask to be restarted for it
			return false, false
		}
		return p.sidecar(c, last), false
	case observed.Exited:
		if !sidecar && last.ExitCode == 0 {
			return true, false
		}
		again = sidecar || podutil.ContainerShouldRestart(*c, p.pod.Spec, last.ExitCode)
	case observed.Unknown:
		again = sidecar || podutil.IsContainerRestartable(p.pod.Spec, *c) // there is no exit code to go by
	default:
	}
	if !again {
		return false, true
	}
	p.start(c, last, true)
	return false, false
}

// sidecar plans what a running sidecar needs and reports whether it counts as
// started.
func (p *planner) sidecar(c *v1.Container, last *observed.ContainerStatus) bool {
	message, probe := "", (*v1.Probe)(nil)
	started := true
	if c.StartupProbe != nil {
		healthy, known := p.probes.Startup(last.ID)
		started = known && healthy
		if known && !healthy {
			message, probe = fmt.Sprintf("Init container %s failed startup probe", c.Name), c.StartupProbe
		}
	}
	if started && last.Hash != podfiles.Hash(c) {
		message = fmt.Sprintf("Init container %s definition changed", c.Name)
	} else if healthy, known := p.probes.Liveness(last.ID); started && c.LivenessProbe != nil && known && !healthy {
		message, probe = fmt.Sprintf("Init container %s failed liveness probe", c.Name), c.LivenessProbe
	}
	if message == "" && p.resize(c, last) {
		message = fmt.Sprintf(resizeRestartText, c.Name)
	}
	if message != "" {
		p.out.kills = append(p.out.kills, kill{id: last.ID, name: c.Name, message: message, probe: probe})
		p.start(c, last, true)
	}
	return started
}

// active returns the newest container of that name in the ready sandbox.
func (p *planner) active(name string) *observed.ContainerStatus {
	for i := range p.status.Containers {
		if c := &p.status.Containers[i]; c.Name == name && c.SandboxID == p.out.sandboxID {
			return c
		}
	}
	return nil
}

// pause makes a start wait if the container ended too often lately.
func pause(pod *v1.Pod, s *start, pauses pauses, now time.Time) {
	if s.previous == nil || s.previous.State != observed.Exited {
		return
	}
	until, length := pauses.until(backoffKey(s.container), s.previous.FinishedAt)
	if !now.Before(until) {
		return
	}
	s.until = until
	s.wait = reason.Wait{
		Reason:  reason.CrashLoopBackOff,
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", length, s.container.Name, describe(pod)),
	}
}

// backoffKey is what a container's pauses are kept by: a changed container
// starts without one.
func backoffKey(c *v1.Container) string { return c.Name + "/" + podfiles.Hash(c) }

// deadOnes returns which dead containers and sandboxes to remove. The newest
// dead container of each name stays, for its logs and its exit code; so does
// the newest sandbox, and one that a container that stays belongs to.
func deadOnes(pod *v1.Pod, status *observed.Status, planned actions) removals {
	var out removals
	kept := map[string]bool{}   // container names
	needed := map[string]bool{} // sandbox IDs
	initAgain := planned.createSandbox && planned.changed
	for _, c := range status.Containers {
		switch {
		case initAgain && isInit(pod, c.Name): // a new sandbox starts from the beginning; they were stopped
			out.containers = append(out.containers, c)
		case c.State == observed.Running || c.State == observed.Unknown:
			needed[c.SandboxID] = true
		case c.State == observed.Created, kept[c.Name]:
			out.containers = append(out.containers, c)
		default:
			kept[c.Name] = true
			needed[c.SandboxID] = true
		}
	}
	for i, s := range status.Sandboxes {
		if i > 0 && s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY && !needed[s.GetId()] {
			out.sandboxes = append(out.sandboxes, s.GetId())
		}
	}
	return out
}

func isInit(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
}
