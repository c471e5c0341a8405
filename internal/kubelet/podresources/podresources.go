// Package podresources serves upstream's API of pod resources, by which agents on
// the machine learn which pods run here and what their containers were given.
//
// It reads the pods that hold resources, and serves them at a Unix socket that
// only root may open: version v1, and what is left of v1alpha1. As upstream's with
// the policies "none" of CPU and memory, it names no CPUs and no memory: no
// container has any of them for itself.
//
// One goroutine serves; each request has its own. Requests beyond what upstream
// takes in a second are refused.
package podresources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// Upstream's limit of requests.
const (
	requestsPerSecond = 100
	burst             = 10
)

// maxRequest bounds a request, in bytes: it holds two names at most.
const maxRequest = 64 << 10

// pods are the pods of this node. Any goroutine may ask.
type pods interface {
	// Pods returns those that are wanted.
	Pods() []*v1.Pod
	PodByName(namespace, name string) (*v1.Pod, bool)
}

// Config says what is served where. All fields are required.
type Config struct {
	Socket string // its folder is made with mode 0750 if it is not there
	Pods   pods
	// Active returns the pods that hold resources: they have not ended. Any
	// goroutine may call it.
	Active func() []*v1.Pod
	// Devices returns the devices of a container, and Allocatable all that are
	// healthy. Any goroutine may call them.
	Devices     func(uid types.UID, container string) []*podresourcesv1.ContainerDevices
	Allocatable func() []*podresourcesv1.ContainerDevices
	Metrics     prometheus.Registerer // takes upstream's kubelet_pod_resources_endpoint_*
	Log         *slog.Logger
}

// A Server serves the API.
type Server struct {
	cfg     Config
	metrics *metrics
}

// New returns a Server that serves nothing until Run.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, metrics: newMetrics(cfg.Metrics)}
}

// Run serves until ctx is done and every request has ended. Pods run without it: if
// the socket cannot be made, as its path is too long for one perhaps, that is logged
// and nothing is served.
func (s *Server) Run(ctx context.Context) error {
	listener, err := listen(ctx, s.cfg.Socket)
	if err != nil {
		s.cfg.Log.Error("the API of pod resources is not served", "path", s.cfg.Socket, "err", err)
		<-ctx.Done()
		return nil
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest), grpc.UnaryInterceptor(limit()))
	podresourcesv1.RegisterPodResourcesListerServer(server, version1{Server: s})
	v1alpha1.RegisterPodResourcesListerServer(server, alpha{Server: s})

	var serving sync.WaitGroup
	defer serving.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	serving.Go(func() {
		<-ctx.Done()
		server.Stop()
	})
	if err := server.Serve(listener); err != nil {
		return fmt.Errorf("serve %s: %w", s.cfg.Socket, err)
	}
	return nil
}

// listen listens at a path where an earlier agent may have left its socket.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("folder of the socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an earlier agent: %w", err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// limit refuses requests beyond upstream's limit, in upstream's words.
func limit() grpc.UnaryServerInterceptor {
	limiter := flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, burst)
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if !limiter.TryAccept() {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return handler(ctx, req)
	}
}
