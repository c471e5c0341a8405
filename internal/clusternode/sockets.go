package clusternode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// sockets are what the node listens on.
type sockets struct {
	api    []net.Listener // of the kubelet's API
	health net.Listener   // of /healthz; nil: none
	open   []net.Listener // of the read-only port; none: there is none
}

// listen takes the ports that the configuration names.
func (s *sockets) listen(ctx context.Context, k *kubeletconfig.KubeletConfiguration) error {
	api, err := listen(ctx, "address", k.Address, "port", k.Port)
	if err != nil {
		return err
	}
	s.api = []net.Listener{api}
	if k.ReadOnlyPort != 0 {
		open, err := listen(ctx, "address", k.Address, "readOnlyPort", k.ReadOnlyPort)
		if err != nil {
			return err
		}
		s.open = []net.Listener{open}
	}
	if *k.HealthzPort != 0 {
		s.health, err = listen(ctx, "healthzBindAddress", k.HealthzBindAddress, "healthzPort", *k.HealthzPort)
	}
	return err
}

// listen listens on an address that the machine may not have yet: a bridge of pods
// comes with them.
func listen(ctx context.Context, addressField, address, portField string, port int32) (net.Listener, error) {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return nil, fmt.Errorf("%s %q is no address", addressField, address)
	}
	cfg := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		errControl := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
		})
		return errors.Join(err, errControl)
	}}
	at := netip.AddrPortFrom(addr, uint16(port)).String() //nolint:gosec // valid
	if addr == netip.IPv4Unspecified() {
		at = fmt.Sprintf(":%d", port) // as upstream's: both families
	}
	l, err := cfg.Listen(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("%s %d of %s: %w (an upstream kubelet may run here: stop it)", portField, port, address, err)
	}
	return l, nil
}

// close closes what was taken. A socket that is closed already is no error.
func (s *sockets) close() error {
	all := slices.Concat(s.api, s.open)
	if s.health != nil {
		all = append(all, s.health)
	}
	var errs []error
	for _, l := range all {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
