package devices

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
)

// PluginType is what device plugins call themselves in the folder of plugins.
const PluginType = "DevicePlugin"

// dialTimeout is how long a plugin that registers has to answer, as upstream's.
const dialTimeout = 10 * time.Second

// maxMessage bounds a plugin's message, in bytes: some hundred thousand devices.
const maxMessage = 16 << 20

// A plugin is one that has registered.
type plugin struct {
	resource, socket string
	client           pluginapi.DevicePluginClient
	options          *pluginapi.DevicePluginOptions
	close            func() error // may be called more than once
}

// Register takes the plugin of a resource, which serves at a socket, and asks it
// for its options. A plugin at a socket takes the place of an older one there.
func (m *Manager) Register(ctx context.Context, resource, socket string, versions []string) error {
	m.metrics.registrations.WithLabelValues(resource).Inc()
	if err := m.register(ctx, resource, socket, versions); err != nil {
		m.cfg.Log.Warn("device plugin refused", "resource", resource, "path", socket, "err", err)
		return err
	}
	m.cfg.Log.Info("device plugin registered", "resource", resource, "path", socket)
	return nil
}

func (m *Manager) register(ctx context.Context, resource, socket string, versions []string) error {
	if !slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(pluginapi.SupportedVersions[:], v) }) {
		return fmt.Errorf("the versions %q of the device plugin API are not supported: serve one of %q", versions, pluginapi.SupportedVersions)
	}
	if !helper.IsExtendedResourceName(v1.ResourceName(resource)) {
		return fmt.Errorf("%q cannot be the name of a device plugin's resource: it has to be like example.com/device", resource)
	}
	p, err := dial(ctx, resource, socket)
	if err != nil {
		return fmt.Errorf("device plugin at %s: %w", socket, err)
	}
	m.connect(p)
	select {
	case m.connected <- p:
		return nil
	case <-ctx.Done():
		m.disconnect(p)
		return errors.Join(ctx.Err(), p.close())
	}
}

func dial(ctx context.Context, resource, socket string) (*plugin, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+socket, grpc.WithContextDialer(dialSocket), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, err
	}
	p := &plugin{resource: resource, socket: socket, client: pluginapi.NewDevicePluginClient(conn), close: sync.OnceValue(conn.Close)}
	if p.options, err = p.client.GetDevicePluginOptions(ctx, &pluginapi.Empty{}, grpc.WaitForReady(true)); err != nil {
		return nil, errors.Join(fmt.Errorf("failed to get device plugin options: %w", err), p.close())
	}
	return p, nil
}

// maxSocketPath is how long the path of a socket may be, in bytes.
const maxSocketPath = 107

// dialSocket connects to a socket, whose path may be longer than the kernel takes one.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	if len(path) <= maxSocketPath {
		return dialer.DialContext(ctx, "unix", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// Deregister lets go of the plugin of a resource at a socket.
func (m *Manager) Deregister(resource, socket string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.mu.resources[resource]; s != nil {
		closeAt(s, socket)
	}
}

// closeAt ends the connection of a plugin, whose hearer then lets go of it.
func closeAt(s *served, socket string) {
	for _, p := range s.plugins {
		if p.socket == socket {
			_ = p.close() // nothing is lost with it
		}
	}
}

func (m *Manager) connect(p *plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.mu.resources[p.resource]
	if s == nil {
		s = &served{}
		m.mu.resources[p.resource] = s
	}
	closeAt(s, p.socket)
	s.plugins = append(s.plugins, p)
	s.stopped, s.prepares = time.Time{}, p.options.GetPreStartRequired()
}

// disconnect forgets a plugin. With the last one of a resource no device of it is
// allocatable.
func (m *Manager) disconnect(p *plugin) {
	m.mu.Lock()
	s := m.mu.resources[p.resource]
	if s == nil || !slices.Contains(s.plugins, p) {
		m.mu.Unlock()
		return
	}
	s.plugins = slices.DeleteFunc(s.plugins, func(other *plugin) bool { return other == p })
	if len(s.plugins) == 0 {
		s.stopped, s.said = time.Now(), false
	}
	m.mu.Unlock()
	m.cfg.Changed(nil)
}

// hear takes in what a plugin says of its devices until it ends.
func (m *Manager) hear(ctx context.Context, p *plugin) {
	err := m.listen(ctx, p)
	if ctx.Err() == nil {
		m.cfg.Log.Warn("device plugin is gone", "resource", p.resource, "path", p.socket, "err", err)
		m.disconnect(p)
	}
	_ = p.close() // nothing is lost with it
}

func (m *Manager) listen(ctx context.Context, p *plugin) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.client.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		return err
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return err
		}
		m.take(p, list.GetDevices())
	}
}

// take keeps what a plugin says of its devices.
func (m *Manager) take(p *plugin, said []*pluginapi.Device) {
	m.mu.Lock()
	s := m.mu.resources[p.resource]
	if s == nil || !slices.Contains(s.plugins, p) {
		m.mu.Unlock()
		return
	}
	before := s.devices
	s.devices, s.said = map[string]*pluginapi.Device{}, true
	pods := sets.New[types.UID]()
	for _, d := range said {
		s.devices[d.GetID()] = d
		if was, ok := before[d.GetID()]; !ok || was.GetHealth() != d.GetHealth() {
			pods.Insert(m.mu.given.holders(p.resource, d.GetID())...)
		}
	}
	healthy := len(s.healthy())
	m.mu.Unlock()
	if before == nil { // an agent after this one has to know the resource
		if err := m.save(); err != nil {
			m.cfg.Log.Error("the resource of a device plugin is not kept", "resource", p.resource, "err", err)
		}
	}
	m.cfg.Log.Info("devices counted", "resource", p.resource, "count", len(said), "healthy", healthy)
	m.cfg.Changed(pods.UnsortedList())
}
