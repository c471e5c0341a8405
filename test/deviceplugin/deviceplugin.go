// Package deviceplugin is a device plugin for tests. Its devices are /dev/zero under
// other names, and each container that has some learns in a variable which.
//
// Like a real one it registers again when its socket is removed, which is how an agent
// that starts says that it is there. All methods may be called from any goroutine.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Variable is the one in which a container finds the IDs of its devices.
const Variable = "DEVICES"

// Config says what a plugin has. All fields up to Devices are required.
type Config struct {
	Dir      string // in which agents listen for device plugins, at kubelet.sock
	Resource string
	Devices  []string // their IDs
	// Prefer says which devices it prefers, as the interface has it. Nil: it has no
	// preference.
	Prefer   func(available, include []string, count int) []string
	PreStart bool // it wants to prepare devices before each start
}

// A Plugin serves devices.
type Plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	cfg Config

	mu      sync.Mutex // guards the fields below
	ill     map[string]bool
	changed chan struct{} // closed, and made anew, when ill changes
	calls   []string      // Allocate and PreStartContainer, with their devices
}

// New returns a plugin whose devices are well.
func New(cfg Config) *Plugin {
	return &Plugin{cfg: cfg, ill: map[string]bool{}, changed: make(chan struct{})}
}

// Socket is the path of the plugin's socket.
func (p *Plugin) Socket() string {
	return filepath.Join(p.cfg.Dir, strings.ReplaceAll(p.cfg.Resource, "/", "-")+".sock")
}

// Run serves and registers until ctx is done.
func (p *Plugin) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := p.serve(ctx); err != nil {
			return err
		}
	}
	return nil
}

// look is how often a plugin looks whether its socket is there.
const look = 50 * time.Millisecond

// serve serves at a new socket until that is removed, or ctx is done.
func (p *Plugin) serve(ctx context.Context) error {
	if err := os.Remove(p.Socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(p.cfg.Dir, 0o750); err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", p.Socket())
	if err != nil {
		return err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // by then it may be another's
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer server.Stop()
	serving.Go(func() { _ = server.Serve(listener) }) // ended by Stop alone

	// A registration with a socket that an agent has just removed is broken off.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serving.Go(func() { p.announce(ctx) })
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if _, err := os.Lstat(p.Socket()); err != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// announce registers until that worked, or ctx is done.
func (p *Plugin) announce(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for p.register(ctx) != nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *Plugin) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.cfg.Dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(p.Socket()), ResourceName: p.cfg.Resource, Options: p.options(),
	})
	return errors.Join(err, conn.Close())
}

func (p *Plugin) options() *pluginapi.DevicePluginOptions {
	return &pluginapi.DevicePluginOptions{PreStartRequired: p.cfg.PreStart, GetPreferredAllocationAvailable: p.cfg.Prefer != nil}
}

// SetIll makes a device ill, or well again.
func (p *Plugin) SetIll(id string, ill bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ill[id] = ill
	close(p.changed)
	p.changed = make(chan struct{})
}

// Calls returns the calls of Allocate and PreStartContainer so far: "Allocate a b".
func (p *Plugin) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *Plugin) note(call string, ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call+" "+strings.Join(slices.Sorted(slices.Values(ids)), " "))
}

// GetDevicePluginOptions says what the plugin wants to be asked.
func (p *Plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return p.options(), nil
}

// ListAndWatch sends the devices, and again when one becomes ill or well.
func (p *Plugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		p.mu.Lock()
		ill, changed := maps.Clone(p.ill), p.changed
		p.mu.Unlock()
		var list pluginapi.ListAndWatchResponse
		for _, id := range p.cfg.Devices {
			d := &pluginapi.Device{ID: id, Health: pluginapi.Healthy}
			if ill[id] {
				d.Health = pluginapi.Unhealthy
			}
			list.Devices = append(list.Devices, d)
		}
		if err := stream.Send(&list); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// GetPreferredAllocation says which devices the plugin prefers.
func (p *Plugin) GetPreferredAllocation(_ context.Context, req *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	var out pluginapi.PreferredAllocationResponse
	for _, r := range req.GetContainerRequests() {
		ids := p.cfg.Prefer(r.GetAvailableDeviceIDs(), r.GetMustIncludeDeviceIDs(), int(r.GetAllocationSize()))
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return &out, nil
}

// Allocate gives each container its devices and their names.
func (p *Plugin) Allocate(_ context.Context, req *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	var out pluginapi.AllocateResponse
	for _, r := range req.GetContainerRequests() {
		ids := slices.Sorted(slices.Values(r.GetDevicesIds()))
		p.note("Allocate", ids)
		c := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{Variable: strings.Join(ids, " ")}}
		for _, id := range ids {
			if !slices.Contains(p.cfg.Devices, id) {
				return nil, fmt.Errorf("there is no device %s", id)
			}
			c.Devices = append(c.Devices, &pluginapi.DeviceSpec{HostPath: "/dev/zero", ContainerPath: "/dev/" + id, Permissions: "r"})
		}
		out.ContainerResponses = append(out.ContainerResponses, c)
	}
	return &out, nil
}

// PreStartContainer notes that it was called.
func (p *Plugin) PreStartContainer(_ context.Context, req *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	p.note("PreStartContainer", req.GetDevicesIds())
	return &pluginapi.PreStartContainerResponse{}, nil
}
