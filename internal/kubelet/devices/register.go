package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// maxRegistration bounds a registration, in bytes: it holds a few names.
const maxRegistration = 64 << 10

// serve serves registrations until ctx is done and every one has ended. Pods that
// want no devices run without it: if the socket cannot be made that is logged.
func (m *Manager) serve(ctx context.Context) {
	listener, err := m.listener(ctx)
	if err != nil {
		m.cfg.Log.Error("device plugins cannot register", "path", m.cfg.Dir, "err", err)
		return
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxRegistration))
	pluginapi.RegisterRegistrationServer(server, registration{m: m})
	var stopping sync.WaitGroup
	defer stopping.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stopping.Go(func() {
		<-ctx.Done()
		server.Stop()
	})
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		m.cfg.Log.Error("device plugins cannot register any more", "path", m.cfg.Dir, "err", err)
	}
}

// listener removes the sockets of plugins, as upstream's kubelet does when it
// starts: that tells them to register again. Then it listens.
func (m *Manager) listener(ctx context.Context) (net.Listener, error) {
	if err := os.MkdirAll(m.cfg.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("folder of device plugins: %w", err)
	}
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("folder of device plugins: %w", err)
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			continue
		}
		if err := os.Remove(filepath.Join(m.cfg.Dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove an old socket: %w", err)
		}
	}
	var config net.ListenConfig
	path := filepath.Join(m.cfg.Dir, "kubelet.sock")
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// registration answers the plugins that register.
type registration struct {
	pluginapi.UnimplementedRegistrationServer
	m *Manager
}

// Register takes a plugin whose socket lies in the folder.
func (r registration) Register(ctx context.Context, req *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	if name := req.GetEndpoint(); name == "" || name != filepath.Base(name) {
		return nil, fmt.Errorf("endpoint %q is not the name of a socket in the folder %s", name, r.m.cfg.Dir)
	}
	err := r.m.Register(ctx, req.GetResourceName(), filepath.Join(r.m.cfg.Dir, req.GetEndpoint()), []string{req.GetVersion()})
	if err != nil {
		return nil, err
	}
	return &pluginapi.Empty{}, nil
}
