package podsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubectl/pkg/util/qos"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

const resizeRestartText = "Container %s resize requires restart"

// sizes returns what a running container is to have and what it has, nil if
// that is not known.
type sizes func(c *v1.Container, last *observed.ContainerStatus) (want, have *runtimeapi.LinuxContainerResources)

// A size is the part of a container's resources that can be changed. Zero is no
// limit.
type size struct {
	shares int64
	quota  int64 // thousandths of a CPU
	memory int64 // bytes
}

func sizeOf(r *runtimeapi.LinuxContainerResources) size {
	s := size{shares: r.GetCpuShares(), memory: max(r.GetMemoryLimitInBytes(), 0)}
	if r.GetCpuQuota() > 0 && r.GetCpuPeriod() > 0 {
		s.quota = r.GetCpuQuota() * 1000 / r.GetCpuPeriod()
	}
	return s
}

// below reports whether a limit is tighter than another.
func below(limit, other int64) bool { return limit > 0 && (other == 0 || limit < other) }

// resize plans the resize of a running container and reports whether it has to
// be restarted for it instead.
func (p *planner) resize(c *v1.Container, last *observed.ContainerStatus) (restart bool) {
	if p.sizes == nil {
		return false
	}
	want, have := p.sizes(c, last)
	w, h := sizeOf(want), sizeOf(have)
	if have != nil && (w.memory != h.memory && podfiles.RestartsFor(c, v1.ResourceMemory) ||
		(w.shares != h.shares || w.quota != h.quota) && podfiles.RestartsFor(c, v1.ResourceCPU)) || asksAnew(c, last) {
		p.out.restarts = true
		return true
	}
	if have != nil && w == h {
		return false
	}
	p.out.resizes = append(p.out.resizes, resize{id: last.ID, name: c.Name, want: want, have: have})
	return false
}

// asksAnew reports whether a container has another memory request than when it was
// created and wants to be restarted for that. The kernel knows nothing of requests.
func asksAnew(c *v1.Container, last *observed.ContainerStatus) bool {
	return last.MemoryAsked != nil && *last.MemoryAsked != c.Resources.Requests.Memory().Value() && podfiles.RestartsFor(c, v1.ResourceMemory)
}

// sortResizes puts those first that give something back.
func sortResizes(all []resize) {
	slices.SortStableFunc(all, func(a, b resize) int { return cmp.Compare(a.grows(), b.grows()) })
}

// grows is 0 for a resize that takes something away and 1 for others.
func (z resize) grows() int {
	w, h := sizeOf(z.want), sizeOf(z.have)
	if z.have != nil && (below(w.memory, h.memory) || below(w.quota, h.quota) || w.shares < h.shares) {
		return 0
	}
	return 1
}

// sizes is that of the plan: what this process gave a container counts, else
// what the runtime tells.
func (r *run) sizes(c *v1.Container, last *observed.ContainerStatus) (want, have *runtimeapi.LinuxContainerResources) {
	return r.node.Resources(r.pod, c), cmp.Or(r.s.size(r.pod.UID, last.ID), last.Resources.GetLinux())
}

// beginResize finds out whether the pod is being resized and has the next
// Report tell of it.
func (r *run) beginResize() {
	s := r.s
	unequal := r.unequal()
	s.mu.Lock()
	m := s.memoryLocked(r.pod.UID)
	switch {
	case m.allocated != nil && allocation.Differs(m.allocated, r.pod), m.progress == nil && unequal:
		m.progress = &allocation.Progress{Generation: r.pod.Generation}
	}
	m.allocated = r.pod
	maps.DeleteFunc(m.sizes, func(id string, _ *runtimeapi.LinuxContainerResources) bool {
		return !slices.ContainsFunc(r.status.Containers, func(c observed.ContainerStatus) bool { return c.ID == id })
	})
	m.told = m.progress
	progress := m.progress
	s.mu.Unlock()
	s.cfg.Statuses.SetProgress(r.pod.UID, progress)
}

// unequal reports whether a running container is known to have something else
// than it should.
func (r *run) unequal() bool {
	for c, last := range r.running() {
		if want, have := r.sizes(c, last); have != nil && sizeOf(want) != sizeOf(have) || asksAnew(c, last) {
			return true
		}
	}
	return false
}

// running yields the pod's containers that run, but ephemeral ones.
func (r *run) running() func(yield func(*v1.Container, *observed.ContainerStatus) bool) {
	return func(yield func(*v1.Container, *observed.ContainerStatus) bool) {
		for _, c := range podfiles.Containers(r.pod) {
			if last := r.status.Container(c.Name); last != nil && last.State == observed.Running && !yield(c, last) {
				return
			}
		}
	}
}

// widest returns the pod with limits that hold what its containers have now and
// what they shall have, and whether that is more than it shall have. The pod's
// cgroup must not get tighter before its containers.
func (r *run) widest() (wide *v1.Pod, more bool) {
	wide = r.pod
	for c, last := range r.running() {
		want, have := r.sizes(c, last)
		w, h := sizeOf(want), sizeOf(have)
		if have == nil || !below(w.memory, h.memory) && !below(w.quota, h.quota) {
			continue
		}
		if !more {
			wide, more = r.pod.DeepCopy(), true
			wide.Status.QOSClass = qos.GetPodQOS(r.pod) // whose cgroup it is does not change
		}
		limits := podfiles.Container(wide, c.Name).Resources.Limits
		if below(w.memory, h.memory) {
			loosen(wide, limits, v1.ResourceMemory, resource.NewQuantity(h.memory, resource.BinarySI))
		}
		if below(w.quota, h.quota) {
			loosen(wide, limits, v1.ResourceCPU, resource.NewMilliQuantity(h.quota, resource.DecimalSI))
		}
	}
	return wide, more
}

// loosen sets a container's limit, where it has one of its own, and a tighter
// one of the pod; zero takes them away.
func loosen(pod *v1.Pod, limits v1.ResourceList, name v1.ResourceName, to *resource.Quantity) {
	lists := []v1.ResourceList{limits}
	if pod.Spec.Resources != nil {
		lists = append(lists, pod.Spec.Resources.Limits)
	}
	for _, list := range lists {
		switch limit, ok := list[name]; {
		case !ok:
		case to.IsZero():
			delete(list, name)
		case limit.Cmp(*to) < 0:
			list[name] = *to
		}
	}
}

// change is what the runtime is told: to it, zero is no change, and what is no
// limit any more has to be said.
func (z resize) change() *runtimeapi.LinuxContainerResources {
	w, h := sizeOf(z.want), sizeOf(z.have)
	out := proto.CloneOf(z.want)
	if w.quota == 0 && h.quota > 0 {
		out.CpuQuota = -1
	}
	if w.memory == 0 && h.memory > 0 {
		out.MemoryLimitInBytes = -1
	}
	return out
}

// resize gives running containers what they shall have. That it cannot be done
// now is told and tried again later; it holds up nothing else. With those that
// restart for it, it is done once they were seen to run.
func (r *run) resize(ctx context.Context, acts actions) error {
	err := r.resizeAll(ctx, acts.resizes)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	why := ""
	if err != nil {
		why = err.Error()
		r.retryAt = time.Now().Add(r.s.cfg.ResizeRetry)
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	m := r.s.memoryLocked(r.pod.UID)
	switch {
	case err == nil && (m.progress == nil || acts.restarts):
	case err == nil:
		m.progress = nil
		r.s.events.normal(r.pod, reason.ResizeCompleted, "%s", allocation.Tell("completed", r.pod, ""))
	case m.progress == nil || m.progress.Error != why:
		m.progress = &allocation.Progress{Error: why, Generation: r.pod.Generation}
		r.s.events.warn(r.pod, reason.ResizeError, "%s", allocation.Tell("error", r.pod, why))
	}
	return nil
}

func (r *run) resizeAll(ctx context.Context, all []resize) error {
	if err := r.checkUsage(ctx, all); err != nil {
		return err
	}
	for _, z := range all {
		if err := r.s.cfg.Runtime.UpdateResources(ctx, z.id, z.change()); err != nil {
			return err
		}
		r.s.rememberSize(r.pod.UID, z.id, z.want)
	}
	if r.narrow {
		if _, err := r.s.cfg.Cgroups.Ensure(r.pod); err != nil {
			return fmt.Errorf("limit cgroup: %w", err)
		}
	}
	return nil
}

// checkUsage refuses to take memory away that is in use: the kernel would kill
// for it.
func (r *run) checkUsage(ctx context.Context, all []resize) error {
	var errs []error
	for _, z := range all {
		limit := sizeOf(z.want).memory
		if z.have == nil || !below(limit, sizeOf(z.have).memory) {
			continue
		}
		usage, err := r.s.cfg.Runtime.MemoryUsage(ctx, z.id)
		if err != nil {
			errs = append(errs, err)
		} else if usage >= uint64(limit) {
			errs = append(errs, fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)", z.name, limit, usage))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("cannot decrease memory limits: %w", errors.Join(errs...))
}

// endResize has the next Report tell what has become of a resize, and reports
// whether that is news.
func (r *run) endResize() bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	m := r.s.memoryLocked(r.pod.UID)
	news := m.told != m.progress
	m.told = m.progress
	r.s.cfg.Statuses.SetProgress(r.pod.UID, m.progress)
	return news
}

func (s *Syncer) size(uid types.UID, containerID string) *runtimeapi.LinuxContainerResources {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mu.pods[uid]; m != nil {
		return m.sizes[containerID]
	}
	return nil
}

func (s *Syncer) rememberSize(uid types.UID, containerID string, r *runtimeapi.LinuxContainerResources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memoryLocked(uid)
	if m.sizes == nil {
		m.sizes = map[string]*runtimeapi.LinuxContainerResources{}
	}
	m.sizes[containerID] = r
}
