// Package crifake is a container runtime for tests: a real CRI v1 server, in
// memory, whose containers run until they are stopped or told to end.
//
// It is the smallest thing that passes the contract suite in package critest,
// as real runtimes do, and the one seam for a runtime's faults: calls that
// fail, hang or take long, by the name of the operation, such as
// "RunPodSandbox"; events that are missing or wrong; a runtime that is away.
//
//	fake := crifake.Start(t)
//	fake.AddImage("holdfast.local/demo:latest")
//	runtime := cri.New(fake.Conn(), cri.Config{})
//
// It has no processes, networks and filesystems: a command in a container does
// what SetExec says, streams are somebody else's (SetStreamServer), and mounts
// are only remembered. A container's log file is written, if it has one.
//
// All methods may be called from any goroutine.
package crifake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A Fake is a runtime. Make one with Start.
type Fake struct {
	faults faults
	feed   feed
	conn   *grpc.ClientConn

	serving struct {
		sync.Mutex
		lis    *bufconn.Listener // nil: nobody listens
		server *grpc.Server
	}
	wg sync.WaitGroup // the servers

	mu           sync.Mutex // guards the fields below
	serial       int
	last         time.Time     // that nowLocked returned
	clock        time.Duration // how far its clock was set from the true time
	sandboxes    map[string]*sandbox
	containers   map[string]*container
	images       map[string]*runtimeapi.Image // by ID
	offered      map[string]*runtimeapi.Image // to be pulled, by name
	programs     map[string]Program
	exec         func(container string, cmd []string) Result
	streamServer string
	networkReady bool
	cgroupDriver *runtimeapi.CgroupDriver // nil: it does not say
	podCIDR      string
	handlers     []string
}

// Start returns a fake that serves until the test ends.
func Start(t testing.TB) *Fake {
	t.Helper()
	f := &Fake{
		sandboxes:    map[string]*sandbox{},
		containers:   map[string]*container{},
		images:       map[string]*runtimeapi.Image{},
		offered:      map[string]*runtimeapi.Image{},
		programs:     map[string]Program{},
		networkReady: true,
		handlers:     []string{"", "runc"},
	}
	f.faults.changed = make(chan struct{})
	f.feed.on = true
	f.serve()
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay, reconnect.MaxDelay = reconnect.BaseDelay/100, reconnect.BaseDelay/10
	conn, err := grpc.NewClient("passthrough:///crifake",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(f.dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}), // as cri.Dial
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)),
	)
	if err != nil {
		t.Fatal(err)
	}
	f.conn = conn
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		f.Stop()
		f.wg.Wait()
	})
	return f
}

// Conn returns a connection to the fake. The test's end closes it.
func (f *Fake) Conn() *grpc.ClientConn { return f.conn }

// Listen serves the fake at a Unix socket, too, until the test ends. That
// server does not take part in Stop and Restart.
func (f *Fake) Listen(t testing.TB, path string) {
	t.Helper()
	var listen net.ListenConfig
	lis, err := listen.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := f.newServer()
	f.wg.Go(func() { serveOn(server, lis) })
	t.Cleanup(server.Stop)
}

// AddHandler has the runtime know one more handler of sandboxes.
func (f *Fake) AddHandler(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handlers = append(f.handlers, name)
}

// Stop makes the runtime go away, as if its daemon was killed: connections and
// event streams break, calls fail. Its containers run on.
func (f *Fake) Stop() {
	f.serving.Lock()
	defer f.serving.Unlock()
	if f.serving.server != nil {
		f.serving.server.Stop()
		f.serving.lis, f.serving.server = nil, nil
	}
}

// Restart makes the runtime go away and come back.
func (f *Fake) Restart() {
	f.Stop()
	f.serve()
}

func (f *Fake) serve() {
	f.serving.Lock()
	defer f.serving.Unlock()
	lis, server := bufconn.Listen(64<<10), f.newServer()
	f.serving.lis, f.serving.server = lis, server
	f.wg.Go(func() { serveOn(server, lis) })
}

func (f *Fake) dial(ctx context.Context, _ string) (net.Conn, error) {
	f.serving.Lock()
	lis := f.serving.lis
	f.serving.Unlock()
	if lis == nil {
		return nil, errors.New("the fake runtime is stopped")
	}
	return lis.DialContext(ctx)
}

func (f *Fake) newServer() *grpc.Server {
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(f.faults.unary),
		grpc.ChainStreamInterceptor(f.faults.stream),
		grpc.MaxSendMsgSize(16<<20),
	)
	runtimeapi.RegisterRuntimeServiceServer(server, &runtimeService{fake: f})
	runtimeapi.RegisterImageServiceServer(server, &imageService{fake: f})
	return server
}

// serveOn returns when the server is stopped. A listener that fails shows in
// the calls that then fail.
func serveOn(server *grpc.Server, lis net.Listener) {
	_ = server.Serve(lis)
}

// SetNetworkReady says whether the runtime's status has NetworkReady. It has at
// first.
func (f *Fake) SetNetworkReady(ready bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.networkReady = ready
}

// newIDLocked returns an ID as real runtimes make them, unique and 64 digits
// long.
func (f *Fake) newIDLocked(kind string) string {
	f.serial++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", kind, f.serial))
	return hex.EncodeToString(sum[:])
}

// StepClock sets the runtime's clock: on, or back if d is negative.
func (f *Fake) StepClock(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock += d
	f.last = f.last.Add(d)
}

// nowLocked returns the time, a later one every time, so that what was made
// later sorts later, unless the clock was set back in between.
func (f *Fake) nowLocked() time.Time {
	now := time.Now().Add(f.clock)
	if !now.After(f.last) {
		now = f.last.Add(1)
	}
	f.last = now
	return now
}
