// Package probehandler asks a container once whether it is well: by a command
// in it, an HTTP request, a TCP connection or a gRPC health call. When to ask
// and what follows is package prober's.
//
// The words of failures are the upstream kubelet's, which show in events. A
// Handler may be used by many goroutines.
package probehandler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// maxOutput is how much of an answer is kept, in bytes.
const maxOutput = 10 << 10

// executor runs commands in containers. A command that outlasts timeout gives
// an error that is context.DeadlineExceeded.
type executor interface {
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
}

// A Handler performs probes.
type Handler struct {
	exec  executor
	agent string
	http  *http.Client
	h2c   *http.Client
}

// New makes a Handler for the version of Kubernetes that we behave as, such as
// v1.37.2. It calls itself kube-probe/1.37: servers tell probes from users by
// that name.
func New(exec executor, version string) *Handler {
	return &Handler{exec: exec, agent: agent(version), http: httpClient(false), h2c: httpClient(true)}
}

func agent(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return "kube-probe/" + major + "." + minor
}

// Probe asks a container once, within the probe's timeout. It reports whether
// the container is well and what there is to say about it: why it is not, or a
// warning though it is. An error means that nobody could be asked, so that
// nothing is known.
func (h *Handler) Probe(ctx context.Context, probe *v1.Probe, c *v1.Container, containerID, podIP string) (ok bool, output string, err error) {
	timeout := time.Duration(max(probe.TimeoutSeconds, 1)) * time.Second
	if probe.Exec != nil {
		return h.command(ctx, probe.Exec.Command, c, containerID, timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case probe.HTTPGet != nil:
		return h.get(ctx, probe.HTTPGet, c, podIP)
	case probe.TCPSocket != nil:
		return h.connect(ctx, probe.TCPSocket, c, podIP)
	case probe.GRPC != nil:
		return h.call(ctx, probe.GRPC, podIP, timeout)
	default:
		return false, "", errors.New("the probe has no handler")
	}
}

// hostOr returns the host that a probe names, or the pod's own address.
func hostOr(host, podIP string) (string, error) {
	switch {
	case host != "":
		return host, nil
	case podIP != "":
		return podIP, nil
	default:
		return "", errors.New("the pod has no address yet")
	}
}

// portOf returns the number of a port that may be given by its name.
func portOf(port intstr.IntOrString, c *v1.Container) (int32, error) {
	number := port.IntVal
	if port.Type == intstr.String {
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				return p.ContainerPort, nil
			}
		}
		return 0, fmt.Errorf("port %q not found", port.StrVal)
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("invalid port number: %d", number)
	}
	return number, nil
}

// dialer opens connections that leave a TIME-WAIT state of one second behind,
// not of a minute: many probes would use up the node's ports (#89898).
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			// Without it, the probe works all the same.
			_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1})
		})
	}}
}
