package crifake

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A container is guarded by the fake's lock.
type container struct {
	id         string
	sandboxID  string
	config     *runtimeapi.ContainerConfig
	image      *runtimeapi.Image
	logPath    string
	createdAt  time.Time
	startedAt  time.Time
	finishedAt time.Time
	exit       Exit
	ended      chan struct{} // closed when it has ended
}

// A Program is what the containers of some name run.
type Program struct {
	Ends        *Exit  // at once; nil: runs until stopped or told to end
	IgnoresTerm bool   // runs to the end of the grace period when stopped
	Output      string // written to the log when it starts
	Fails       string // why it cannot be started; empty: it can
	Memory      uint64 // bytes that it uses
}

// An Exit is how a container ended.
type Exit struct {
	Code    int32
	Reason  string // default Completed for code 0, otherwise Error
	Message string
}

// SetProgram says what containers called name run from now on. The zero
// Program, which all run at first, ends with code 143 when stopped.
func (f *Fake) SetProgram(name string, p Program) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.programs[name] = p
}

// Exit ends a running container by itself.
func (f *Fake) Exit(id string, code int32) error { return f.ExitWith(id, Exit{Code: code}) }

// ExitWith is Exit with a reason, such as OOMKilled, and a message.
func (f *Fake) ExitWith(id string, exit Exit) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[id]
	if c == nil || c.state() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return fmt.Errorf("no running container %q", id)
	}
	f.endLocked(c, exit)
	return nil
}

// Containers returns the IDs of the containers of a pod that are called name,
// oldest first; with an empty name, of all of them.
func (f *Fake) Containers(namespace, pod, name string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for _, c := range f.containersLocked(func(c *container) bool {
		m := f.sandboxes[c.sandboxID].config.GetMetadata()
		return m.GetNamespace() == namespace && m.GetName() == pod && (name == "" || c.config.GetMetadata().GetName() == name)
	}) {
		ids = append(ids, c.id)
	}
	return ids
}

// Config returns the configuration with which a container was created, or nil.
func (f *Fake) Config(id string) *runtimeapi.ContainerConfig {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.containers[id]; c != nil {
		return proto.CloneOf(c.config)
	}
	return nil
}

func (c *container) state() runtimeapi.ContainerState {
	switch {
	case !c.finishedAt.IsZero():
		return runtimeapi.ContainerState_CONTAINER_EXITED
	case !c.startedAt.IsZero():
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	default:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	}
}

func (c *container) statusLocked() *runtimeapi.ContainerStatus {
	s := &runtimeapi.ContainerStatus{
		Id:          c.id,
		Metadata:    c.config.GetMetadata(),
		State:       c.state(),
		CreatedAt:   c.createdAt.UnixNano(),
		Image:       &runtimeapi.ImageSpec{Image: name(c.image), UserSpecifiedImage: c.config.GetImage().GetUserSpecifiedImage()},
		ImageRef:    digest(c.image),
		ImageId:     c.image.GetId(),
		Labels:      c.config.GetLabels(),
		Annotations: c.config.GetAnnotations(),
		Mounts:      c.config.GetMounts(),
		LogPath:     c.logPath,
		Resources:   &runtimeapi.ContainerResources{Linux: c.config.GetLinux().GetResources()},
	}
	if !c.startedAt.IsZero() {
		s.StartedAt = c.startedAt.UnixNano()
	}
	if !c.finishedAt.IsZero() {
		s.FinishedAt = c.finishedAt.UnixNano()
		s.ExitCode, s.Reason, s.Message = c.exit.Code, c.exit.Reason, c.exit.Message
	}
	return proto.CloneOf(s)
}

// containersLocked returns the containers that are wanted, oldest first.
func (f *Fake) containersLocked(wanted func(*container) bool) []*container {
	var all []*container
	for _, c := range f.containers {
		if wanted(c) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *container) int { return a.createdAt.Compare(b.createdAt) })
	return all
}

func (f *Fake) containersOfLocked(sandboxID string) []*container {
	return f.containersLocked(func(c *container) bool { return c.sandboxID == sandboxID })
}

func (f *Fake) endLocked(c *container, exit Exit) {
	if c.state() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	if exit.Reason == "" {
		exit.Reason = "Error"
		if exit.Code == 0 {
			exit.Reason = "Completed"
		}
	}
	c.exit, c.finishedAt = exit, f.nowLocked()
	close(c.ended)
	f.tellLocked(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.id, c.sandboxID)
}

func (f *Fake) removeLocked(c *container) {
	f.endLocked(c, Exit{Code: 137})
	delete(f.containers, c.id)
	f.tellLocked(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.id, c.sandboxID)
}

func (s *runtimeService) CreateContainer(_ context.Context, req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	f := s.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	box, config := f.sandboxes[req.GetPodSandboxId()], req.GetConfig()
	if box == nil {
		return nil, status.Errorf(codes.NotFound, "sandbox %q: not found", req.GetPodSandboxId())
	}
	if config.GetMetadata() == nil {
		return nil, status.Error(codes.InvalidArgument, "container config has no metadata")
	}
	for _, other := range f.containersOfLocked(box.id) {
		if proto.Equal(other.config.GetMetadata(), config.GetMetadata()) {
			return nil, status.Errorf(codes.Unknown, "name of container %s attempt %d is reserved for %q", config.GetMetadata().GetName(), config.GetMetadata().GetAttempt(), other.id)
		}
	}
	image := f.imageLocked(config.GetImage().GetImage())
	if image == nil {
		return nil, status.Errorf(codes.NotFound, "image %q: not found", config.GetImage().GetImage())
	}
	c := &container{
		id:        f.newIDLocked("container"),
		sandboxID: box.id,
		config:    proto.CloneOf(config),
		image:     image,
		createdAt: f.nowLocked(),
		ended:     make(chan struct{}),
	}
	if dir := cmp.Or(box.config.GetLogDirectory(), req.GetSandboxConfig().GetLogDirectory()); dir != "" && config.GetLogPath() != "" {
		c.logPath = filepath.Join(dir, config.GetLogPath())
	}
	f.containers[c.id] = c
	f.tellLocked(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, c.id, c.sandboxID)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

func (s *runtimeService) StartContainer(_ context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	f := s.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.containerLocked(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.state() != runtimeapi.ContainerState_CONTAINER_CREATED {
		return nil, status.Errorf(codes.Unknown, "container %q is in state %s", c.id, c.state())
	}
	if !f.sandboxes[c.sandboxID].ready {
		return nil, status.Errorf(codes.Unknown, "sandbox %q is not running", c.sandboxID)
	}
	program := f.programs[c.config.GetMetadata().GetName()]
	if program.Fails != "" {
		c.finishedAt, c.exit = f.nowLocked(), Exit{Code: 128, Reason: "StartError", Message: program.Fails}
		close(c.ended)
		return nil, status.Error(codes.Unknown, program.Fails)
	}
	if err := c.writeLog(program.Output); err != nil {
		return nil, status.Error(codes.Unknown, err.Error())
	}
	c.startedAt = f.nowLocked()
	f.tellLocked(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.id, c.sandboxID)
	if program.Ends != nil {
		f.endLocked(c, *program.Ends)
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (s *runtimeService) StopContainer(ctx context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	f := s.fake
	if ended := f.term(req.GetContainerId(), req.GetTimeout() > 0); ended != nil {
		select {
		case <-ended:
		case <-time.After(time.Duration(req.GetTimeout()) * time.Second):
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.containers[req.GetContainerId()]; c != nil {
		f.endLocked(c, Exit{Code: 137})
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// term asks a container to end. It returns nil if there is nothing to wait
// for before it is killed.
func (f *Fake) term(id string, grace bool) (ended <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[id]
	if c == nil || c.state() != runtimeapi.ContainerState_CONTAINER_RUNNING || !grace {
		return nil
	}
	if f.programs[c.config.GetMetadata().GetName()].IgnoresTerm {
		return c.ended
	}
	f.endLocked(c, Exit{Code: 143})
	return nil
}

func (s *runtimeService) RemoveContainer(_ context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	if c := s.fake.containers[req.GetContainerId()]; c != nil {
		s.fake.removeLocked(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (s *runtimeService) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	filter := req.GetFilter()
	got := &runtimeapi.ListContainersResponse{}
	for _, c := range s.fake.containersLocked(func(c *container) bool {
		return (filter.GetId() == "" || filter.GetId() == c.id) &&
			(filter.GetPodSandboxId() == "" || filter.GetPodSandboxId() == c.sandboxID) &&
			(filter.GetState() == nil || filter.GetState().GetState() == c.state()) &&
			selects(filter.GetLabelSelector(), c.config.GetLabels())
	}) {
		got.Containers = append(got.Containers, &runtimeapi.Container{
			Id:           c.id,
			PodSandboxId: c.sandboxID,
			Metadata:     c.config.GetMetadata(),
			Image:        c.config.GetImage(),
			ImageRef:     digest(c.image),
			ImageId:      c.image.GetId(),
			State:        c.state(),
			CreatedAt:    c.createdAt.UnixNano(),
			Labels:       c.config.GetLabels(),
			Annotations:  c.config.GetAnnotations(),
		})
	}
	return got, nil
}

func (s *runtimeService) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	c, err := s.fake.containerLocked(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.statusLocked()}, nil
}

func (s *runtimeService) UpdateContainerResources(_ context.Context, req *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	c, err := s.fake.containerLocked(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.config.Linux == nil {
		c.config.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	c.config.Linux.Resources = proto.CloneOf(req.GetLinux())
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// ContainerStats tells of memory alone.
func (s *runtimeService) ContainerStats(_ context.Context, req *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	c, err := s.fake.containerLocked(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	used := &runtimeapi.UInt64Value{Value: max(s.fake.programs[c.config.GetMetadata().GetName()].Memory, 4096)}
	return &runtimeapi.ContainerStatsResponse{Stats: &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{Id: c.id, Metadata: c.config.GetMetadata()},
		Memory:     &runtimeapi.MemoryUsage{UsageBytes: used, WorkingSetBytes: used},
	}}, nil
}

func (s *runtimeService) ReopenContainerLog(_ context.Context, req *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	c, err := s.fake.containerLocked(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.state() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return nil, status.Errorf(codes.Unknown, "container %q is not running", c.id)
	}
	if err := c.writeLog(""); err != nil {
		return nil, status.Error(codes.Unknown, err.Error())
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

func (f *Fake) containerLocked(id string) (*container, error) {
	if c := f.containers[id]; c != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "container %q: not found", id)
}

// writeLog appends output to the log, in CRI's format, and makes the file if
// it is not there.
func (c *container) writeLog(output string) error {
	if c.logPath == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.logPath), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(c.logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	for line := range strings.Lines(output) {
		fmt.Fprintf(f, "%s stdout F %s\n", time.Now().Format(time.RFC3339Nano), strings.TrimSuffix(line, "\n"))
	}
	return f.Close()
}
