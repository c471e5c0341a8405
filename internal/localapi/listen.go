package localapi

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

func (s *Server) listen() error {
	for _, address := range s.cfg.Listen {
		network := "tcp"
		if addr, err := netip.ParseAddrPort(address); err == nil && addr.Addr().Is4() {
			network = "tcp4" // with "tcp", 0.0.0.0 would take IPv6 too
		}
		l, err := net.Listen(network, address) //nolint:noctx // a listen on an address does not wait
		if err != nil {
			return fmt.Errorf("serve the embedded API: %w", err)
		}
		s.listeners = append(s.listeners, l)
	}
	return nil
}

// Close releases the listeners of a Server that is not going to run.
func (s *Server) Close() error {
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Address is host:port of the first listener, on loopback.
func (s *Server) Address() string {
	addr := s.listeners[0].Addr().(*net.TCPAddr)
	if addr.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(addr.Port))
	}
	return addr.String()
}

// Port is the port of the first listener.
func (s *Server) Port() int { return s.listeners[0].Addr().(*net.TCPAddr).Port }
