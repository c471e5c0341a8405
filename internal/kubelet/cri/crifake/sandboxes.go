package crifake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type runtimeService struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	fake *Fake
}

// A sandbox is guarded by the fake's lock.
type sandbox struct {
	id        string
	config    *runtimeapi.PodSandboxConfig
	handler   string
	ready     bool
	createdAt time.Time
	ip        string
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (s *sandbox) statusLocked() *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id:          s.id,
		Metadata:    s.config.GetMetadata(),
		State:       s.state(),
		CreatedAt:   s.createdAt.UnixNano(),
		Network:     &runtimeapi.PodSandboxNetworkStatus{Ip: s.ip},
		Linux:       &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels:      s.config.GetLabels(),
		Annotations: s.config.GetAnnotations(),

		RuntimeHandler: s.handler,
	}
}

// KillSandbox ends a sandbox's own process, and with it everything in it.
func (f *Fake) KillSandbox(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sandboxes[id]
	if s == nil {
		return fmt.Errorf("no sandbox %q", id)
	}
	f.endSandboxLocked(s)
	return nil
}

// Sandboxes returns the IDs of the sandboxes of a pod, oldest first.
func (f *Fake) Sandboxes(namespace, pod string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for _, s := range f.sandboxesLocked(func(s *sandbox) bool {
		m := s.config.GetMetadata()
		return m.GetNamespace() == namespace && m.GetName() == pod
	}) {
		ids = append(ids, s.id)
	}
	return ids
}

// sandboxesLocked returns the sandboxes that are wanted, oldest first.
func (f *Fake) sandboxesLocked(wanted func(*sandbox) bool) []*sandbox {
	var all []*sandbox
	for _, s := range f.sandboxes {
		if wanted(s) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *sandbox) int { return a.createdAt.Compare(b.createdAt) })
	return all
}

// endSandboxLocked kills what runs in a sandbox and gives back its address.
func (f *Fake) endSandboxLocked(s *sandbox) {
	if !s.ready {
		return
	}
	for _, c := range f.containersOfLocked(s.id) {
		f.endLocked(c, Exit{Code: 137})
	}
	s.ready, s.ip = false, ""
	f.tellLocked(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, s.id, s.id)
}

func (s *runtimeService) RunPodSandbox(_ context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	f := s.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	meta := req.GetConfig().GetMetadata()
	if meta == nil {
		return nil, status.Error(codes.InvalidArgument, "sandbox config has no metadata")
	}
	if h := req.GetRuntimeHandler(); !slices.Contains(f.handlers, h) {
		return nil, status.Errorf(codes.Unknown, "no runtime for %q is configured", h)
	}
	for _, other := range f.sandboxes {
		if proto.Equal(other.config.GetMetadata(), meta) {
			return nil, status.Errorf(codes.Unknown, "name of sandbox %s/%s attempt %d is reserved for %q", meta.GetNamespace(), meta.GetName(), meta.GetAttempt(), other.id)
		}
	}
	box := &sandbox{
		id:        f.newIDLocked("sandbox"),
		config:    proto.CloneOf(req.GetConfig()),
		handler:   req.GetRuntimeHandler(),
		ready:     true,
		createdAt: f.nowLocked(),
	}
	if box.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE {
		if !f.networkReady {
			return nil, status.Error(codes.Unknown, "cni plugin not initialized")
		}
		box.ip = fmt.Sprintf("10.88.%d.%d", f.serial/250%250, f.serial%250+2)
	}
	f.sandboxes[box.id] = box
	f.tellLocked(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, box.id, box.id)
	f.tellLocked(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, box.id, box.id)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: box.id}, nil
}

func (s *runtimeService) StopPodSandbox(_ context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	if box := s.fake.sandboxes[req.GetPodSandboxId()]; box != nil {
		s.fake.endSandboxLocked(box)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (s *runtimeService) RemovePodSandbox(_ context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	f := s.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	box := f.sandboxes[req.GetPodSandboxId()]
	if box == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	f.endSandboxLocked(box)
	for _, c := range f.containersOfLocked(box.id) {
		f.removeLocked(c)
	}
	delete(f.sandboxes, box.id)
	f.tellLocked(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, box.id, box.id)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (s *runtimeService) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	box := s.fake.sandboxes[req.GetPodSandboxId()]
	if box == nil {
		return nil, status.Errorf(codes.NotFound, "sandbox %q: not found", req.GetPodSandboxId())
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: box.statusLocked()}, nil
}

func (s *runtimeService) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	filter := req.GetFilter()
	got := &runtimeapi.ListPodSandboxResponse{}
	for _, box := range s.fake.sandboxesLocked(func(box *sandbox) bool {
		return (filter.GetId() == "" || filter.GetId() == box.id) &&
			(filter.GetState() == nil || filter.GetState().GetState() == box.state()) &&
			selects(filter.GetLabelSelector(), box.config.GetLabels())
	}) {
		got.Items = append(got.Items, &runtimeapi.PodSandbox{
			Id:             box.id,
			Metadata:       box.config.GetMetadata(),
			State:          box.state(),
			CreatedAt:      box.createdAt.UnixNano(),
			Labels:         box.config.GetLabels(),
			Annotations:    box.config.GetAnnotations(),
			RuntimeHandler: box.handler,
		})
	}
	return got, nil
}

func (s *runtimeService) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	box := s.fake.sandboxes[req.GetPodSandboxId()]
	if box == nil {
		return nil, status.Errorf(codes.NotFound, "sandbox %q: not found", req.GetPodSandboxId())
	}
	if !box.ready {
		return nil, status.Errorf(codes.Unknown, "sandbox %q is not running", box.id)
	}
	url, err := s.fake.streamURLLocked("portforward", box.id)
	return &runtimeapi.PortForwardResponse{Url: url}, err
}

// selects reports whether labels has every pair of selector.
func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
