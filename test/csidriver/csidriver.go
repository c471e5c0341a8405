// Package csidriver is a CSI driver for tests: the node service and the
// registration of a real one, over real Unix sockets, whose volumes are folders
// and loop devices on this machine.
//
// It is picky: what the interface forbids its caller is refused and remembered,
// for Broken to tell. It makes trouble when it is told to: calls that fail, or
// hang, before or after they have done their work.
package csidriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Config says what the driver is. The zero value of every field will do, but for
// Name and Dir.
type Config struct {
	Name       string
	Dir        string   // its data; kept from one driver to the next
	Versions   []string // that it says it speaks; default: 1.0.0
	Type       string   // of plugin; default: CSIPlugin
	Topology   map[string]string
	MaxVolumes int64
	// Lacks are capabilities that the driver does not have; it has all others that
	// Holdfast uses, but for those in Also.
	Lacks, Also []spec.NodeServiceCapability_RPC_Type
	// Mount has volumes really mounted, for which the test must be root. Without,
	// they are empty folders.
	Mount bool
	// Usage is what NodeGetVolumeStats says; nil: what the filesystem of the volume
	// says, and that every volume has 10 inodes.
	Usage []*spec.VolumeUsage
	// Offline has volumes grow only while no pod has them.
	Offline bool
}

// A Driver is one that runs.
type Driver struct {
	spec.UnimplementedNodeServer
	spec.UnimplementedIdentityServer
	spec.UnimplementedControllerServer
	registration.UnimplementedRegistrationServer
	cfg Config

	mu      sync.Mutex
	calls   []Call
	wrong   *string // with all volumes, as ones of an earlier version say it; nil: it does not say
	health  []*spec.VolumeHealth_VolumeHealthEntry
	trouble map[string]*trouble
	broken  []string
	staged  map[string]string          // by handle: where
	users   map[string]map[string]bool // by handle: the targets
	sizes   map[string]int64
	made    map[string]int64 // by CreateVolume: bytes
	status  *registration.RegistrationStatus
	told    chan struct{} // buffer 1: rings when status changes
}

// A Call is a call that the driver has had.
type Call struct {
	Name    string // such as NodePublishVolume
	Request any    // the message
}

// trouble is what becomes of the next calls of a name.
type trouble struct {
	err   error
	after bool // the work is done nevertheless
	times int
	hang  chan struct{} // closed when the calls go on; nil: they do not hang
}

// New makes a driver that nobody can reach.
func New(cfg Config) *Driver {
	if cfg.Versions == nil {
		cfg.Versions = []string{"1.0.0"}
	}
	if cfg.Type == "" {
		cfg.Type = "CSIPlugin"
	}
	return &Driver{
		cfg: cfg, trouble: map[string]*trouble{}, staged: map[string]string{}, users: map[string]map[string]bool{},
		sizes: map[string]int64{}, made: map[string]int64{}, told: make(chan struct{}, 1),
	}
}

// Endpoint is the socket of the driver's service.
func (d *Driver) Endpoint() string { return filepath.Join(d.cfg.Dir, "csi.sock") }

// Serve has the driver answer at its endpoint until stop is called or the test
// ends.
func (d *Driver) Serve(t testing.TB) (stop func()) {
	t.Helper()
	return serve(t, d.Endpoint(), d.registerNode, d.intercept)
}

// Announce has the driver register by a socket in a folder until stop is called,
// which removes the socket, or the test ends.
func (d *Driver) Announce(t testing.TB, folder string) (stop func()) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	return serve(t, d.socket(folder), d.registerRegistration, d.intercept)
}

func (d *Driver) socket(folder string) string { return filepath.Join(folder, d.cfg.Name+"-reg.sock") }

func (d *Driver) registerNode(s *grpc.Server) {
	spec.RegisterNodeServer(s, d)
	spec.RegisterIdentityServer(s, d)
	spec.RegisterControllerServer(s, d)
}

func (d *Driver) registerRegistration(s *grpc.Server) { registration.RegisterRegistrationServer(s, d) }

func serve(t testing.TB, path string, register func(*grpc.Server), intercept grpc.UnaryServerInterceptor) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	listener, err := listen(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := answer(ctx, listener, register, intercept); err != nil {
			t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

// Run has the driver answer at its endpoint, and register by a socket in a folder,
// until ctx is done.
func (d *Driver) Run(ctx context.Context, folder string) error {
	endpoint, err := listen(ctx, d.Endpoint())
	if err != nil {
		return err
	}
	registry, err := listen(ctx, d.socket(folder))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return answer(ctx, endpoint, d.registerNode, d.intercept) })
	group.Go(func() error { return answer(ctx, registry, d.registerRegistration, d.intercept) })
	return group.Wait()
}

// listen listens on a Unix socket, which takes the place of an earlier one.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return new(net.ListenConfig).Listen(ctx, "unix", path)
}

// answer answers until ctx is done, and removes the socket.
func answer(ctx context.Context, listener net.Listener, register func(*grpc.Server), intercept grpc.UnaryServerInterceptor) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(intercept))
	register(server)
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	}
	return nil
}

// intercept notes a call and makes its trouble.
func (d *Driver) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, do grpc.UnaryHandler) (any, error) {
	name := filepath.Base(info.FullMethod)
	d.mu.Lock()
	d.calls = append(d.calls, Call{name, request})
	now := d.trouble[name]
	if now != nil && now.times > 0 {
		if now.times--; now.times == 0 {
			delete(d.trouble, name)
		}
	}
	field := lacks(request)
	if field != "" {
		d.broken = append(d.broken, name+" without "+field)
	}
	d.mu.Unlock()
	if field != "" {
		return nil, status.Errorf(codes.InvalidArgument, "%s is not set", field)
	}
	if now == nil {
		return do(ctx, request)
	}
	if now.hang != nil {
		select {
		case <-now.hang:
			return do(ctx, request)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if now.after {
		if _, err := do(ctx, request); err != nil {
			return nil, err
		}
	}
	return nil, now.err
}

// Fail has the next calls of a name fail, before they do anything.
func (d *Driver) Fail(name string, times int, err error) {
	d.make(name, &trouble{err: err, times: times})
}

// FailAfter has the next calls of a name fail after all is done.
func (d *Driver) FailAfter(name string, times int, err error) {
	d.make(name, &trouble{err: err, times: times, after: true})
}

// Hang has all calls of a name hang until goOn is called.
func (d *Driver) Hang(name string) (goOn func()) {
	hang := make(chan struct{})
	d.make(name, &trouble{hang: hang})
	return sync.OnceFunc(func() {
		d.make(name, nil)
		close(hang)
	})
}

func (d *Driver) make(name string, what *trouble) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if what == nil {
		delete(d.trouble, name)
		return
	}
	d.trouble[name] = what
}

// Calls returns the calls of some names, all without any, since the last
// Forget, in order.
func (d *Driver) Calls(names ...string) []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := slices.Clone(d.calls)
	if len(names) > 0 {
		calls = slices.DeleteFunc(calls, func(c Call) bool { return !slices.Contains(names, c.Name) })
	}
	return calls
}

// Forget empties what Calls returns.
func (d *Driver) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = nil
}

// Broken returns the rules that the driver's caller has broken.
func (d *Driver) Broken() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.broken)
}

// Left returns what is staged and published now, in order.
func (d *Driver) Left() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var left []string
	for handle, path := range d.staged {
		left = append(left, handle+" staged at "+path)
	}
	for handle, targets := range d.users {
		for target := range targets {
			left = append(left, handle+" published at "+target)
		}
	}
	slices.Sort(left)
	return left
}

// Ail has the driver say what is wrong with its volumes: as drivers of earlier versions
// of the interface do, empty being nothing, and as those with GET_VOLUME_HEALTH do.
func (d *Driver) Ail(wrong *string, health ...*spec.VolumeHealth_VolumeHealthEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wrong, d.health = wrong, health
}

// Limit has the driver say from now on how many volumes it can attach here.
func (d *Driver) Limit(volumes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg.MaxVolumes = volumes
}

// Size is to how many bytes a volume was grown on the node; 0: it was not.
func (d *Driver) Size(handle string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sizes[handle]
}

// Registered waits until the driver is told how its registration ended, and
// returns the error; empty: it is registered.
func (d *Driver) Registered(ctx context.Context) (string, error) {
	for {
		d.mu.Lock()
		status := d.status
		d.status = nil
		d.mu.Unlock()
		if status != nil {
			return status.GetError(), nil
		}
		select {
		case <-d.told:
		case <-ctx.Done():
			return "", fmt.Errorf("the driver is not told: %w", ctx.Err())
		}
	}
}

// GetInfo says who the driver is.
func (d *Driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: d.cfg.Type, Name: d.cfg.Name, Endpoint: d.Endpoint(), SupportedVersions: d.cfg.Versions}, nil
}

// NotifyRegistrationStatus takes how the registration ended.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	d.mu.Lock()
	d.status = s
	d.mu.Unlock()
	select {
	case d.told <- struct{}{}:
	default:
	}
	return &registration.RegistrationStatusResponse{}, nil
}
