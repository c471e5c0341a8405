// Package faultpoint stands between a node and its container runtime and makes
// trouble at the calls that a test chooses. Nothing of the product knows of it.
//
// A Proxy passes every gRPC call and stream on as it is, and asks the test's
// Plan about each: it may wait, fail, be sent twice, lose its answer, and the
// test may do something of its own (kill the agent, say) before it, while the
// runtime works, or when its answer has come and is not passed on yet.
package faultpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A Call is one message that passes: a request, or one message of a stream that
// the runtime keeps up.
type Call struct {
	Verb    string // "RunPodSandbox"
	Stream  bool   // a later message of the runtime's, as events are
	Request string // as it is on the wire; empty for a stream and its messages
}

// Names reports whether the request has a text in it, such as an ID.
func (c Call) Names(text string) bool { return strings.Contains(c.Request, text) }

// A Fault is what happens to a call. The zero Fault is none.
type Fault struct {
	// Delay is waited before the request is sent.
	Delay time.Duration
	// Before is called when the request has come and was not sent.
	Before func()
	// During is called as soon as the request was sent.
	During func()
	// After is called when the answer has come and was not passed on.
	After func()
	// Fail is answered instead of sending the request.
	Fail error
	// Hang keeps the request until whoever asked gives up.
	Hang bool
	// Lose answers Unavailable once the runtime has answered. Of a stream, the
	// message is left out.
	Lose bool
	// Twice sends the request again after the answer, which is the first's all
	// the same. Of a stream, the message comes twice.
	Twice bool
	// Late is of a stream: the message comes after the next one.
	Late bool
	// Again is of a stream: the message comes once more so much later, when what
	// it is about may be gone.
	Again time.Duration
}

// A Plan says what happens to a call. Calls ask at the same time.
type Plan func(Call) Fault

// A Proxy is one socket in front of another.
type Proxy struct {
	listen, target string
	mu             sync.Mutex // guards the field below
	plan           Plan
}

// New returns a proxy that listens at the socket path listen, for the runtime
// at the socket path target.
func New(listen, target string) *Proxy {
	return &Proxy{listen: listen, target: target, plan: func(Call) Fault { return Fault{} }}
}

// Set changes the plan for calls to come.
func (p *Proxy) Set(plan Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

func (p *Proxy) fault(c Call) Fault {
	p.mu.Lock()
	plan := p.plan
	p.mu.Unlock()
	return plan(c)
}

// Run listens and serves until ctx is cancelled. ready is called when it listens.
func (p *Proxy) Run(ctx context.Context, ready func()) (err error) {
	if err := os.Remove(p.listen); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	lis, err := new(net.ListenConfig).Listen(ctx, "unix", p.listen)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", p.listen, err)
	}
	conn, err := grpc.NewClient("unix://"+p.target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.MaxRecvMsgSize(1<<30), grpc.MaxSendMsgSize(1<<30),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return p.pass(s, conn) }))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		server.Stop()
	}()
	ready()
	err = server.Serve(lis)
	<-stopped
	return err
}

// pass passes one call or stream on.
func (p *Proxy) pass(from grpc.ServerStream, conn *grpc.ClientConn) error {
	method, _ := grpc.MethodFromServerStream(from)
	verb := path.Base(method)
	if strings.HasPrefix(method, "/runtime.v1.") && verb != "GetContainerEvents" && !strings.HasPrefix(verb, "Stream") {
		return p.call(from, conn, method, verb)
	}
	return p.stream(from, conn, method, verb)
}

// call passes a request and its one answer.
func (p *Proxy) call(from grpc.ServerStream, conn *grpc.ClientConn, method, verb string) error {
	var request, answer []byte
	if err := from.RecvMsg(&request); err != nil {
		return err
	}
	ctx, f := from.Context(), p.fault(Call{Verb: verb, Request: string(request)})
	if err := f.ask(ctx); err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() { answered <- conn.Invoke(ctx, method, &request, &answer) }()
	if f.During != nil {
		f.During()
	}
	err := <-answered
	if f.Twice {
		var ignored []byte
		_ = conn.Invoke(ctx, method, &request, &ignored) // what comes of it is the runtime's affair
	}
	if f.After != nil {
		f.After()
	}
	if f.Lose {
		return status.Error(codes.Unavailable, "the answer was lost")
	}
	if err != nil {
		return err
	}
	return from.SendMsg(&answer)
}

// ask does what a fault wants before the request is sent.
func (f Fault) ask(ctx context.Context) error {
	if f.Before != nil {
		f.Before()
	}
	wait := time.After(f.Delay)
	if f.Hang {
		wait = nil
	}
	if f.Hang || f.Delay > 0 {
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f.Fail
}

// stream passes messages both ways.
func (p *Proxy) stream(from grpc.ServerStream, conn *grpc.ClientConn, method, verb string) error {
	ctx := from.Context()
	if md, ok := metadata.FromIncomingContext(ctx); ok { // containerd's own services have a namespace in it
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	if err := p.fault(Call{Verb: verb}).ask(ctx); err != nil {
		return err
	}
	to, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	// It ends with the client's last message, or with the call: gRPC ends the
	// server's side of a stream when its handler returns.
	go requests(from, to)
	out := newMessages(from)
	defer out.end()
	for {
		var m []byte
		err := to.RecvMsg(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := out.pass(m, p.fault(Call{Verb: verb, Stream: true})); err != nil {
			return err
		}
	}
}

// requests passes what the client says until it has said all.
func requests(from grpc.ServerStream, to grpc.ClientStream) {
	for {
		var m []byte
		if from.RecvMsg(&m) != nil {
			_ = to.CloseSend() // if the client went, the call ends with its context
			return
		}
		if to.SendMsg(&m) != nil {
			return // the answers say why
		}
	}
}

// raw passes messages as bytes.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
