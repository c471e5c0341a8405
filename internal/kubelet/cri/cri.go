// Package cri talks to a container runtime over CRI v1 and translates what it
// says into package observed. One file holds one verb.
//
// There is one thing that CRI cannot do: the task that containerd keeps of a start
// that was called off is removed by containerd's own API, on the same socket.
//
// It keeps no state and decides nothing: every method is one question or one
// command (Pods and Inspect are a few questions), each with a deadline of its
// own beside its context's. All methods may be called from any goroutine.
//
// Errors are those of package observed (ErrNotFound, ErrUnavailable,
// ErrNoEvents) or context errors, wrapped with what was being done and the
// runtime's own words. Stopping or removing what is gone is no error.
package cri

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// The errors of this package, by the names under which stages know them.
var (
	ErrNotFound    = observed.ErrNotFound
	ErrUnavailable = observed.ErrUnavailable
	ErrNoEvents    = observed.ErrNoEvents

	ErrRegistryUnavailable = observed.ErrRegistryUnavailable
	ErrSignatureValidation = observed.ErrSignatureValidation
)

// maxMessage is the size in bytes of the largest answer that is accepted, as
// upstream's: a list of some thousand pods.
const maxMessage = 16 << 20

// Config is what a Runtime needs.
type Config struct {
	// Log takes what the runtime reports wrongly. Default: nothing is logged.
	Log *slog.Logger
	// Timeout bounds every call except pulls, commands in containers, which
	// take their own on top, and events, which have none. Starting a sandbox
	// may take twice as long. Default 2 minutes, as upstream's
	// runtimeRequestTimeout; too small a value makes slow starts fail.
	Timeout time.Duration
	// ImageConn leads to the image service. Nil: the runtime is one.
	ImageConn *grpc.ClientConn
	// ImageTimeout bounds one pull. The runtime itself gives up on a pull that
	// makes no progress, so this is only the last resort. Default 1 hour.
	ImageTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Minute
	}
	if c.ImageTimeout == 0 {
		c.ImageTimeout = time.Hour
	}
	return c
}

// A Runtime is a container runtime and its image service.
type Runtime struct {
	log     *slog.Logger
	timeout time.Duration
	pull    time.Duration
	conn    *grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
}

// New returns the runtime at the other end of conn. It sends nothing yet.
func New(conn *grpc.ClientConn, cfg Config) *Runtime {
	cfg = cfg.withDefaults()
	images := cfg.ImageConn
	if images == nil {
		images = conn
	}
	return &Runtime{
		log:     cfg.Log,
		timeout: cfg.Timeout,
		pull:    cfg.ImageTimeout,
		conn:    conn,
		runtime: runtimeapi.NewRuntimeServiceClient(conn),
		images:  runtimeapi.NewImageServiceClient(images),
	}
}

// Dial prepares a connection to the Unix socket endpoint, a path with or
// without the scheme unix. It does not wait for anybody to listen there: the
// first call connects, and a lost connection is made anew. The caller closes it.
func Dial(endpoint string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix://"), "unix:")
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("container runtime endpoint %q: want unix:///path/to/socket", endpoint)
	}
	// Retries as often as upstream's kubelet: a runtime that comes back is
	// found within 3 seconds.
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay = 100 * time.Millisecond
	reconnect.MaxDelay = 3 * time.Second
	conn, err := grpc.NewClient("unix://"+path, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}, more...)...)
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint %q: %w", endpoint, err)
	}
	return conn, nil
}

// deadline returns ctx bounded by the timeout of one call.
func (r *Runtime) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.timeout)
}

// afterthought is how long a call that makes a process goes on after its caller has
// given up.
const afterthought = 10 * time.Second

// throughout bounds a call that makes a process by limit, and keeps the end of ctx
// from it for a while: containerd leaves processes and tasks behind that it does not
// know any more where such a call is broken off, and most last less than a second.
// What was made is found and ended as the rest of its pod is.
func throughout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-call.Done():
		case <-time.After(afterthought):
			cancel()
		}
	})
	return call, func() {
		stop()
		cancel()
	}
}
