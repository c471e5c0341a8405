package devices

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Resources returns what the node has of devices, what of it pods may ask for, and the
// resources of which it has none any more. A resource whose plugin has gone has a
// capacity until the grace period is over.
func (m *Manager) Resources() (capacity, allocatable v1.ResourceList, removed []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = v1.ResourceList{}, v1.ResourceList{}
	for name, s := range m.mu.resources {
		if len(s.plugins) == 0 && time.Since(s.stopped) > m.cfg.Grace {
			removed = append(removed, name)
			continue
		}
		capacity[v1.ResourceName(name)] = *resource.NewQuantity(int64(len(s.devices)), resource.DecimalSI)
		allocatable[v1.ResourceName(name)] = *resource.NewQuantity(int64(s.healthy().Len()), resource.DecimalSI)
	}
	slices.Sort(removed)
	return capacity, allocatable, removed
}

// Fits returns what is allocatable as the admission of a pod is to count it: of
// devices at least as many as were given. What has devices has passed the count,
// though the API's Node may not say so yet, or not any more. The list is not changed.
func (m *Manager) Fits(uid types.UID, allocatable v1.ResourceList) v1.ResourceList {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.given[uid]) == 0 {
		return allocatable
	}
	out := allocatable.DeepCopy()
	for _, resources := range m.mu.given[uid] {
		for name := range resources {
			given := int64(m.mu.given.used(name).Len())
			if now := out[v1.ResourceName(name)]; now.Value() < given {
				out[v1.ResourceName(name)] = *resource.NewQuantity(given, resource.DecimalSI)
			}
		}
	}
	return out
}

// Devices returns the devices of a container, for the API of pod resources.
func (m *Manager) Devices(uid types.UID, container string) []*podresourcesv1.ContainerDevices {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*podresourcesv1.ContainerDevices
	given := m.mu.given[uid][container]
	for _, name := range slices.Sorted(maps.Keys(given)) {
		for _, id := range given[name].ids() {
			out = append(out, describe(name, id, given[name].devices[id])...)
		}
	}
	return out
}

// Allocatable returns the healthy devices, whoever has them, for the same API.
func (m *Manager) Allocatable() []*podresourcesv1.ContainerDevices {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*podresourcesv1.ContainerDevices
	for _, name := range slices.Sorted(maps.Keys(m.mu.resources)) {
		s := m.mu.resources[name]
		for _, id := range slices.Sorted(maps.Keys(s.healthy())) {
			out = append(out, describe(name, id, s.nodes(id))...)
		}
	}
	return out
}

// describe names one device: once for each of its NUMA nodes, as upstream's API does.
func describe(name, id string, nodes []int64) []*podresourcesv1.ContainerDevices {
	if len(nodes) == 0 {
		return []*podresourcesv1.ContainerDevices{{ResourceName: name, DeviceIds: []string{id}}}
	}
	var out []*podresourcesv1.ContainerDevices
	for _, node := range nodes {
		out = append(out, &podresourcesv1.ContainerDevices{
			ResourceName: name, DeviceIds: []string{id},
			Topology: &podresourcesv1.TopologyInfo{Nodes: []*podresourcesv1.NUMANode{{ID: node}}},
		})
	}
	return out
}

// nodes returns the NUMA nodes of a device.
func (s *served) nodes(id string) []int64 {
	var nodes []int64
	for _, n := range s.devices[id].GetTopology().GetNodes() {
		nodes = append(nodes, n.GetID())
	}
	return nodes
}

// Health returns how the devices of a container are, for its status. Of a device
// that no plugin speaks of now it says what was last known, as upstream's kubelet.
func (m *Manager) Health(uid types.UID, container string) []v1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []v1.ResourceStatus
	given := m.mu.given[uid][container]
	for _, name := range slices.Sorted(maps.Keys(given)) {
		status := v1.ResourceStatus{Name: v1.ResourceName(name)}
		for _, id := range given[name].ids() {
			health := v1.ResourceHealthStatusHealthy
			if s := m.mu.resources[name]; s != nil && s.devices[id] != nil && s.devices[id].GetHealth() != pluginapi.Healthy {
				health = v1.ResourceHealthStatusUnhealthy
			}
			status.Resources = append(status.Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(id), Health: health})
		}
		out = append(out, status)
	}
	return out
}
