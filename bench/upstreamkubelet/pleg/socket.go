package main

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

// idlePods is how many pods there are while nothing happens.
const idlePods = 110

// A socketRuntime is a runtime behind a socket, in which nothing happens. Its
// answers are as long as those of a real one.
type socketRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
}

func newSocketRuntime() *socketRuntime {
	s := &socketRuntime{}
	for i := range idlePods {
		uid, sandbox := fmt.Sprintf("0b8a2f1c-4d6e-4f7a-9b0c-%012d", i), fmt.Sprintf("%064d", i)
		labels := func(more ...string) map[string]string {
			all := map[string]string{
				runtimelabels.PodUID: uid, runtimelabels.PodName: fmt.Sprintf("application-%d", i), runtimelabels.PodNamespace: "default",
				"app.kubernetes.io/name": "application", "app.kubernetes.io/instance": fmt.Sprint(i),
			}
			for ; len(more) > 0; more = more[2:] {
				all[more[0]] = more[1]
			}
			return all
		}
		s.sandboxes = append(s.sandboxes, &runtimeapi.PodSandbox{
			Id: sandbox, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: 1_700_000_000_000_000_000 + int64(i),
			Metadata:    &runtimeapi.PodSandboxMetadata{Name: fmt.Sprintf("application-%d", i), Uid: uid, Namespace: "default"},
			Labels:      labels(),
			Annotations: map[string]string{"kubernetes.io/config.seen": "2026-01-01T00:00:00.000000000Z", "kubernetes.io/config.source": "api"},
		})
		for c := range perPod {
			s.containers = append(s.containers, &runtimeapi.Container{
				Id: fmt.Sprintf("%063d%d", i, c), PodSandboxId: sandbox, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
				CreatedAt: 1_700_000_000_000_000_000 + int64(i), Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("container-%d", c)},
				Image: &runtimeapi.ImageSpec{Image: "registry.example.com/application:v1"}, ImageRef: fmt.Sprintf("sha256:%064d", c),
				Labels: labels(runtimelabels.ContainerName, fmt.Sprintf("container-%d", c)),
				Annotations: map[string]string{
					"io.kubernetes.container.hash": "5c1f3ab2", "io.kubernetes.container.restartCount": "0",
					"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
					"io.kubernetes.container.terminationMessagePolicy": "File", "io.kubernetes.pod.terminationGracePeriod": "30",
				},
			})
		}
	}
	return s
}

// listen serves at a path until stop is called.
func (s *socketRuntime) listen(ctx context.Context, path string) (stop func(), err error) {
	lis, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	ended := make(chan struct{})
	go func() {
		_ = server.Serve(lis) // who asks it says what is wrong
		close(ended)
	}()
	return func() { server.Stop(); <-ended }, nil
}

func (*socketRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "bench", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

// has reports whether labels are what a filter wants.
func has(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (s *socketRuntime) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	answer := &runtimeapi.ListPodSandboxResponse{}
	for _, box := range s.sandboxes {
		if has(box.GetLabels(), r.GetFilter().GetLabelSelector()) {
			answer.Items = append(answer.Items, box)
		}
	}
	return answer, nil
}

func (s *socketRuntime) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	answer := &runtimeapi.ListContainersResponse{}
	for _, c := range s.containers {
		if has(c.GetLabels(), r.GetFilter().GetLabelSelector()) {
			answer.Containers = append(answer.Containers, c)
		}
	}
	return answer, nil
}

func (s *socketRuntime) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	for _, box := range s.sandboxes {
		if box.GetId() == r.GetPodSandboxId() {
			return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
				Id: box.GetId(), Metadata: box.GetMetadata(), State: box.GetState(), CreatedAt: box.GetCreatedAt(), Labels: box.GetLabels(),
				Annotations: box.GetAnnotations(), Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.88.0.7"},
			}}, nil
		}
	}
	return nil, fmt.Errorf("no sandbox %q", r.GetPodSandboxId())
}

func (s *socketRuntime) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	for _, c := range s.containers {
		if c.GetId() == r.GetContainerId() {
			return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
				Id: c.GetId(), Metadata: c.GetMetadata(), State: c.GetState(), CreatedAt: c.GetCreatedAt(), StartedAt: c.GetCreatedAt(),
				Image: c.GetImage(), ImageRef: c.GetImageRef(), Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
			}}, nil
		}
	}
	return nil, fmt.Errorf("no container %q", r.GetContainerId())
}

// GetContainerEvents has nothing to tell.
func (*socketRuntime) GetContainerEvents(_ *runtimeapi.GetEventsRequest, s grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	<-s.Context().Done()
	return nil
}
