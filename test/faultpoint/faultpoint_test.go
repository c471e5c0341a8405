package faultpoint_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/test/faultpoint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A counter counts what reaches the runtime.
type counter struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	versions chan struct{}
	stay     bool // its stream does not end by itself
}

func (c *counter) Version(_ context.Context, r *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	c.versions <- struct{}{}
	if r.GetVersion() == "bad" {
		return nil, status.Error(codes.NotFound, "no such version")
	}
	return &runtimeapi.VersionResponse{RuntimeName: "counter", Version: r.GetVersion()}, nil
}

func (c *counter) GetContainerEvents(_ *runtimeapi.GetEventsRequest, s grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	for _, id := range []string{"a", "b"} {
		if err := s.Send(&runtimeapi.ContainerEventResponse{ContainerId: id}); err != nil {
			return err
		}
	}
	if c.stay {
		<-s.Context().Done()
	}
	return nil
}

// start returns a client that talks through a proxy to c.
func start(t *testing.T, c *counter) (*faultpoint.Proxy, runtimeapi.RuntimeServiceClient) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-fp-") //nolint:usetesting // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	lis, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "target"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, c)
	p := faultpoint.New(filepath.Join(dir, "listen"), filepath.Join(dir, "target"))
	ctx, cancel := context.WithCancel(context.Background())
	ended, ready := make(chan error, 2), make(chan struct{})
	go func() { ended <- server.Serve(lis) }()
	go func() { ended <- p.Run(ctx, func() { close(ready) }) }()
	<-ready
	conn, err := cri.Dial(filepath.Join(dir, "listen"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		server.Stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		_ = os.RemoveAll(dir)
	})
	return p, runtimeapi.NewRuntimeServiceClient(conn)
}

func TestCalls(t *testing.T) {
	var order []string
	note := func(what string) func() { return func() { order = append(order, what) } }
	for name, test := range map[string]struct {
		fault   faultpoint.Fault
		version string
		code    codes.Code
		reached int // calls that the runtime got
	}{
		"none":         {faultpoint.Fault{}, "v1", codes.OK, 1},
		"its own":      {faultpoint.Fault{}, "bad", codes.NotFound, 1},
		"fails":        {faultpoint.Fault{Fail: status.Error(codes.Internal, "broken")}, "v1", codes.Internal, 0},
		"hangs":        {faultpoint.Fault{Hang: true}, "v1", codes.DeadlineExceeded, 0},
		"delayed":      {faultpoint.Fault{Delay: time.Millisecond}, "v1", codes.OK, 1},
		"answer lost":  {faultpoint.Fault{Lose: true}, "v1", codes.Unavailable, 1},
		"twice":        {faultpoint.Fault{Twice: true}, "v1", codes.OK, 2},
		"with actions": {faultpoint.Fault{Before: note("before"), During: note("during"), After: note("after")}, "v1", codes.OK, 1},
	} {
		t.Run(name, func(t *testing.T) {
			order = nil
			c := &counter{versions: make(chan struct{}, 10)}
			p, client := start(t, c)
			p.Set(func(call faultpoint.Call) faultpoint.Fault {
				if call.Verb != "Version" || call.Stream || !call.Names(test.version) || call.Names("v2") {
					t.Errorf("call %+v", call)
				}
				return test.fault
			})
			limit := 30 * time.Second
			if test.fault.Hang {
				limit = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			got, err := client.Version(ctx, &runtimeapi.VersionRequest{Version: test.version})
			if status.Code(err) != test.code || err == nil && got.GetVersion() != test.version {
				t.Errorf("got %v, %v, want code %v", got, err, test.code)
			}
			if reached := len(c.versions); reached != test.reached {
				t.Errorf("%d calls reached the runtime, want %d", reached, test.reached)
			}
			if test.fault.Before != nil && (len(order) != 3 || order[0] != "before" || order[2] != "after") {
				t.Errorf("order of actions: %v", order)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	for name, test := range map[string]struct {
		fault faultpoint.Fault
		want  string
	}{
		"none":  {faultpoint.Fault{}, "ab"},
		"lost":  {faultpoint.Fault{Lose: true}, ""},
		"twice": {faultpoint.Fault{Twice: true}, "aabb"},
		"late":  {faultpoint.Fault{Late: true}, "ba"},
		"again": {faultpoint.Fault{Again: time.Millisecond}, "aabb"},
		"never": {faultpoint.Fault{Fail: status.Error(codes.Unavailable, "not now")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, client := start(t, &counter{stay: test.fault.Again > 0})
			p.Set(func(c faultpoint.Call) faultpoint.Fault {
				if !c.Stream && test.fault.Fail == nil {
					return faultpoint.Fault{}
				}
				return test.fault
			})
			stream, err := client.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for len(got) < len(test.want) || test.fault.Again == 0 { // the runtime ends it when that does not
				event, err := stream.Recv()
				if err != nil {
					break
				}
				got += event.GetContainerId()
			}
			if test.fault.Again > 0 { // in whatever order
				letters := []byte(got)
				slices.Sort(letters)
				got = string(letters)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
