package probehandler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

// call is well if the container's health service says that it serves.
func (h *Handler) call(ctx context.Context, action *v1.GRPCAction, podIP string, timeout time.Duration) (bool, string, error) {
	host, err := hostOr("", podIP)
	if err != nil {
		return false, "", err
	}
	creds := insecure.NewCredentials()
	if action.Mode != nil && *action.Mode == v1.GRPCProbeModeTLS {
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) // as for HTTPS
	}
	addr := net.JoinHostPort(host, strconv.Itoa(int(action.Port)))
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithUserAgent(h.agent),
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer().DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		return false, "", err
	}
	defer func() { _ = conn.Close() }()

	service := ""
	if action.Service != nil {
		service = *action.Service
	}
	resp, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: service})
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return false, "", ctx.Err()
	case err != nil:
		return false, grpcFailure(err, addr, timeout), nil
	case resp.GetStatus() != health.HealthCheckResponse_SERVING:
		return false, fmt.Sprintf("service unhealthy (responded with %q)", resp.GetStatus()), nil
	default:
		return true, "", nil
	}
}

func grpcFailure(err error, addr string, timeout time.Duration) string {
	switch status.Code(err) {
	case codes.Unimplemented:
		return fmt.Sprintf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", status.Convert(err).Message())
	case codes.DeadlineExceeded:
		return fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)
	case codes.Unavailable:
		return fmt.Sprintf("error: failed to connect service at %q: %v", addr, err)
	default:
		return fmt.Sprintf("error: health rpc probe failed: %v", err)
	}
}
