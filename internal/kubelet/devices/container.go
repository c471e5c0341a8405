package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// Container returns what the devices of a container bring into it. It asks their
// plugins to prepare them, where these want that before each start. A container that
// was given none, as its pod was not admitted but restored, gets them now.
func (m *Manager) Container(ctx context.Context, pod *v1.Pod, c *v1.Container) (podfiles.Given, error) {
	wants, missing := m.wants(pod.UID, c)
	if missing {
		if err := m.giveLate(ctx, pod, c); err != nil {
			return podfiles.Given{}, err
		}
	}
	var given merged
	for _, resource := range wants {
		m.mu.Lock()
		g, ok := m.mu.given.get(pod.UID, c.Name, resource)
		m.mu.Unlock()
		if !ok {
			return podfiles.Given{}, fmt.Errorf("no devices of %s are given to container %s", resource, c.Name)
		}
		if err := m.preStart(ctx, resource, g.ids()); err != nil {
			return podfiles.Given{}, fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
		}
		given.add(g.answer)
	}
	return given.Given, nil
}

// wants returns the resources of which a container asks for devices, in order, and
// whether any is not given.
func (m *Manager) wants(uid types.UID, c *v1.Container) (resources []string, missing bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	resources = slices.Sorted(maps.Keys(m.wantsLocked(c)))
	for _, resource := range resources {
		if _, ok := m.mu.given.get(uid, c.Name, resource); !ok {
			missing = true
		}
	}
	return resources, missing
}

// giveLate has one container given its devices.
func (m *Manager) giveLate(ctx context.Context, pod *v1.Pod, c *v1.Container) error {
	done := make(chan error, 1)
	m.mu.Lock()
	m.mu.jobs = append(m.mu.jobs, &job{pod: pod, only: c.Name, done: done})
	m.mu.Unlock()
	m.work.Ring()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// preStart has a plugin prepare devices, if it wants to.
func (m *Manager) preStart(ctx context.Context, resource string, ids []string) error {
	m.mu.Lock()
	s := m.mu.resources[resource]
	wanted, p := s != nil && s.prepares, s.plugin()
	m.mu.Unlock()
	switch {
	case !wanted:
		return nil
	case p == nil:
		return errors.New("the plugin is not connected")
	}
	ctx, cancel := context.WithTimeout(ctx, pluginapi.KubeletPreStartContainerRPCTimeoutInSecs*time.Second)
	defer cancel()
	_, err := p.client.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: ids})
	return err
}

// merged adds up the answers of the plugins of a container. The first that says
// something of a name wins.
type merged struct {
	podfiles.Given
	seen map[string]bool
}

// first reports whether nothing was said of a name of this kind yet.
func (g *merged) first(kind, name string) bool {
	if g.seen == nil {
		g.seen = map[string]bool{}
	}
	key := kind + " " + name
	if g.seen[key] {
		return false
	}
	g.seen[key] = true
	return true
}

func (g *merged) add(answer *pluginapi.ContainerAllocateResponse) {
	for _, name := range slices.Sorted(maps.Keys(answer.GetEnvs())) {
		if g.first("env", name) {
			g.Env = append(g.Env, podfiles.Var{Name: name, Value: answer.GetEnvs()[name]})
		}
	}
	for _, d := range answer.GetDevices() {
		if g.first("device", d.GetContainerPath()) {
			g.Devices = append(g.Devices, &runtimeapi.Device{ContainerPath: d.GetContainerPath(), HostPath: d.GetHostPath(), Permissions: d.GetPermissions()})
		}
	}
	for _, mount := range answer.GetMounts() {
		if g.first("mount", mount.GetContainerPath()) {
			g.Mounts = append(g.Mounts, &runtimeapi.Mount{ContainerPath: mount.GetContainerPath(), HostPath: mount.GetHostPath(), Readonly: mount.GetReadOnly()})
		}
	}
	for _, d := range answer.GetCdiDevices() {
		if g.first("CDI", d.GetName()) {
			g.CDIDevices = append(g.CDIDevices, &runtimeapi.CDIDevice{Name: d.GetName()})
		}
	}
	for name, value := range answer.GetAnnotations() {
		if g.first("annotation", name) {
			if g.Annotations == nil {
				g.Annotations = map[string]string{}
			}
			g.Annotations[name] = value
		}
	}
}
