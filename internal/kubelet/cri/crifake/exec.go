package crifake

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A Result is what a command in a container did.
type Result struct {
	Stdout, Stderr string
	Code           int32
	Takes          time.Duration
}

// SetExec says what commands in containers do. At first they write nothing and
// end with code 0.
func (f *Fake) SetExec(run func(container string, cmd []string) Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exec = run
}

// SetStreamServer says where exec, attach and port forward are served: their
// URLs begin with base. Without, they are not implemented.
func (f *Fake) SetStreamServer(base string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streamServer = base
}

func (f *Fake) streamURLLocked(what, id string) (string, error) {
	if f.streamServer == "" {
		return "", status.Error(codes.Unimplemented, "no stream server")
	}
	return f.streamServer + "/" + what + "/" + id, nil
}

// runningLocked returns a container in which something can be run.
func (f *Fake) runningLocked(id string) (*container, error) {
	c, err := f.containerLocked(id)
	if err != nil {
		return nil, err
	}
	if c.state() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, status.Errorf(codes.Unknown, "container %q is in state %s", c.id, c.state())
	}
	return c, nil
}

func (s *runtimeService) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	s.fake.mu.Lock()
	_, err := s.fake.runningLocked(req.GetContainerId())
	run := s.fake.exec
	s.fake.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var got Result
	if run != nil {
		got = run(req.GetContainerId(), req.GetCmd())
	}
	if req.GetTimeout() > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(req.GetTimeout())*time.Second)
		defer cancel()
	}
	select {
	case <-ctx.Done():
		return nil, status.Errorf(codes.DeadlineExceeded, "command %q timed out", req.GetCmd())
	case <-time.After(got.Takes):
	}
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(got.Stdout), Stderr: []byte(got.Stderr), ExitCode: got.Code}, nil
}

func (s *runtimeService) Exec(_ context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	c, err := s.fake.runningLocked(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	url, err := s.fake.streamURLLocked("exec", c.id)
	return &runtimeapi.ExecResponse{Url: url}, err
}

func (s *runtimeService) Attach(_ context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	c, err := s.fake.runningLocked(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	url, err := s.fake.streamURLLocked("attach", c.id)
	return &runtimeapi.AttachResponse{Url: url}, err
}
