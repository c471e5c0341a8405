package probehandler

import (
	"context"
	"errors"
	"net"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// connect is well if a connection opens.
func (h *Handler) connect(ctx context.Context, action *v1.TCPSocketAction, c *v1.Container, podIP string) (bool, string, error) {
	host, err := hostOr(action.Host, podIP)
	if err != nil {
		return false, "", err
	}
	port, err := portOf(action.Port, c)
	if err != nil {
		return false, "", err
	}
	conn, err := dialer().DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return false, "", ctx.Err()
		}
		return false, err.Error(), nil
	}
	_ = conn.Close() // it opened, which is all that was asked
	return true, "", nil
}
