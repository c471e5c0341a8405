package devices

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// A job is a pod, or one container of it, that is to be given devices.
type job struct {
	pod    *v1.Pod
	only   string              // the container; empty: all of them
	others sets.Set[types.UID] // that hold devices; nil: not known
	done   chan<- error        // of a container's, with room for the answer; nil: a pod's
}

// Admit gives a pod its devices, beside others, which are those that hold
// resources. known is false while a plugin is asked: Decided rings when Admit is to
// be called again. The error is upstream's.
func (m *Manager) Admit(pod *v1.Pod, others []*v1.Pod) (known bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.waiting.Has(pod.UID) {
		return false, nil
	}
	if err, ok := m.mu.verdicts[pod.UID]; ok {
		delete(m.mu.verdicts, pod.UID)
		return true, err
	}
	if !m.asksLocked(pod) {
		return true, nil
	}
	j := &job{pod: pod, others: sets.New[types.UID]()}
	for _, other := range others {
		j.others.Insert(other.UID)
	}
	m.mu.waiting.Insert(pod.UID)
	m.mu.jobs = append(m.mu.jobs, j)
	m.work.Ring()
	return false, nil
}

// asksLocked reports whether a pod asks for a device that it does not have, or may
// not have any more.
func (m *Manager) asksLocked(pod *v1.Pod) bool {
	for _, c := range podfiles.Containers(pod) {
		for resource, count := range m.wantsLocked(c) {
			if settled, err := m.needLocked(pod.UID, c.Name, resource, count).settled(); !settled || err != nil {
				return true
			}
		}
	}
	return false
}

// needLocked returns what a container needs, and what there is.
func (m *Manager) needLocked(uid types.UID, container, resource string, count int) need {
	s := m.mu.resources[resource]
	n := need{resource: resource, count: count, registered: s != nil, healthy: s.healthy(), used: m.mu.given.used(resource)}
	if g, ok := m.mu.given.get(uid, container, resource); ok {
		n.has = sets.New(g.ids()...)
	}
	return n
}

// allocate does the jobs, one after the other, until ctx is done: nobody else gives
// devices, so what is free stays free while a plugin is asked.
func (m *Manager) allocate(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.work:
		}
		for ctx.Err() == nil {
			j := m.nextJob()
			if j == nil {
				break
			}
			m.finish(j, m.give(ctx, j))
		}
	}
}

func (m *Manager) nextJob() *job {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.jobs) == 0 {
		return nil
	}
	j := m.mu.jobs[0]
	m.mu.jobs = m.mu.jobs[1:]
	return j
}

// finish tells who waits for a job what came of it.
func (m *Manager) finish(j *job, err error) {
	if err != nil {
		m.cfg.Log.Warn("devices were not allocated", "pod", j.pod.Namespace+"/"+j.pod.Name, "podUID", j.pod.UID, "err", err)
	}
	if j.done != nil {
		j.done <- err
		return
	}
	m.mu.Lock()
	m.mu.waiting.Delete(j.pod.UID)
	m.mu.verdicts[j.pod.UID] = err
	m.mu.Unlock()
	m.decided.Ring()
}

// give gives the containers of a pod their devices, in the order in which they run.
// What init containers have, others get when they have ended; sidecars keep theirs.
func (m *Manager) give(ctx context.Context, j *job) error {
	m.reclaim(j)
	reusable := map[string]sets.Set[string]{}
	for i, c := range podfiles.Containers(j.pod) {
		if j.only != "" && j.only != c.Name {
			continue
		}
		given, err := m.giveContainer(ctx, j.pod.UID, c, reusable)
		if err != nil {
			return err
		}
		ends := i < len(j.pod.Spec.InitContainers) && !podfiles.IsSidecar(c)
		for resource, ids := range given {
			if ends {
				reusable[resource] = reusable[resource].Union(ids)
			} else {
				reusable[resource] = reusable[resource].Difference(ids)
			}
		}
	}
	return nil
}

// reclaim takes back the devices of pods that cannot use them any more, once it is
// known which pods there are.
func (m *Manager) reclaim(j *job) {
	if j.others == nil {
		return
	}
	holders, known := m.cfg.Holders()
	if !known {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	there := func(uid types.UID) bool {
		return uid == j.pod.UID || j.others.Has(uid) || holders.Has(uid) || m.mu.waiting.Has(uid)
	}
	maps.DeleteFunc(m.mu.given, func(uid types.UID, _ map[string]map[string]grant) bool { return !there(uid) })
	maps.DeleteFunc(m.mu.verdicts, func(uid types.UID, _ error) bool { return !there(uid) })
}

// giveContainer gives one container its devices, and returns those that it has.
func (m *Manager) giveContainer(ctx context.Context, uid types.UID, c *v1.Container, reusable map[string]sets.Set[string]) (map[string]sets.Set[string], error) {
	m.mu.Lock()
	wants := m.wantsLocked(c)
	m.mu.Unlock()
	given := map[string]sets.Set[string]{}
	for _, resource := range slices.Sorted(maps.Keys(wants)) {
		m.mu.Lock()
		n, p := m.needLocked(uid, c.Name, resource, wants[resource]), m.mu.resources[resource].plugin()
		m.mu.Unlock()
		n.reusable = reusable[resource]
		settled, err := n.settled()
		if err != nil {
			return nil, err
		}
		if settled {
			given[resource] = n.has
			continue
		}
		if p == nil {
			return nil, fmt.Errorf("unknown Device Plugin %s", resource)
		}
		ids, answer, err := m.ask(ctx, p, n)
		if err != nil {
			return nil, err
		}
		if err := m.keep(uid, c.Name, resource, ids, answer); err != nil {
			return nil, fmt.Errorf("keep what was given of %s: %w", resource, err)
		}
		given[resource] = sets.New(ids...)
	}
	return given, nil
}

// ask has a plugin say which devices it prefers, and allocate those that are chosen.
func (m *Manager) ask(ctx context.Context, p *plugin, n need) ([]string, *pluginapi.ContainerAllocateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.CallTimeout)
	defer cancel()
	ids, err := choose(n, func(available, include []string, count int) ([]string, error) {
		if !p.options.GetGetPreferredAllocationAvailable() {
			return nil, nil
		}
		return p.prefer(ctx, available, include, count)
	})
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	answer, err := p.client.Allocate(ctx, &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}})
	m.metrics.allocations.WithLabelValues(n.resource).Observe(time.Since(began).Seconds())
	if err != nil {
		return nil, nil, err
	}
	if len(answer.GetContainerResponses()) == 0 {
		return nil, nil, fmt.Errorf("no containers return in allocation response %v", answer)
	}
	return ids, answer.GetContainerResponses()[0], nil
}

// prefer asks the plugin which devices it prefers.
func (p *plugin) prefer(ctx context.Context, available, include []string, count int) ([]string, error) {
	answer, err := p.client.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{
			{AvailableDeviceIDs: available, MustIncludeDeviceIDs: include, AllocationSize: int32(count)},
		},
	})
	if err != nil || len(answer.GetContainerResponses()) == 0 {
		return nil, err
	}
	return answer.GetContainerResponses()[0].GetDeviceIDs(), nil
}

// keep writes down what a container was given. If that fails it was not given.
func (m *Manager) keep(uid types.UID, container, resource string, ids []string, answer *pluginapi.ContainerAllocateResponse) error {
	m.mu.Lock()
	g := grant{devices: map[string][]int64{}, answer: answer}
	for _, id := range ids {
		g.devices[id] = m.mu.resources[resource].nodes(id)
	}
	m.mu.given.set(uid, container, resource, g)
	m.mu.Unlock()
	err := m.save()
	if err != nil {
		m.mu.Lock()
		delete(m.mu.given[uid][container], resource)
		m.mu.Unlock()
	}
	return err
}
