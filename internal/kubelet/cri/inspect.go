package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

// Inspect returns everything that the runtime knows of one pod. Of a pod that
// it does not know it returns a status with only the UID and no error. What
// goes away while it looks is left out.
func (r *Runtime) Inspect(ctx context.Context, uid types.UID) (*observed.Status, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got := &observed.Status{UID: uid, Time: time.Now()}
	if err := r.inspectSandboxes(ctx, got); err != nil {
		return nil, fmt.Errorf("inspect pod %s: %w", uid, err)
	}
	if err := r.inspectContainers(ctx, got); err != nil {
		return nil, fmt.Errorf("inspect pod %s: %w", uid, err)
	}
	got.IPs = podIPs(got.ReadySandbox())
	return got, nil
}

func (r *Runtime) inspectSandboxes(ctx context.Context, to *observed.Status) error {
	list, err := r.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: ofPod(to.UID)},
	})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", translate(err))
	}
	for _, s := range list.GetItems() {
		got, err := r.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
		if err := translate(err); errors.Is(err, ErrNotFound) {
			continue
		} else if err != nil {
			return fmt.Errorf("inspect sandbox %q: %w", s.GetId(), err)
		}
		to.Sandboxes = append(to.Sandboxes, got.GetStatus())
		to.Name = cmp.Or(to.Name, s.GetLabels()[runtimelabels.PodName])
		to.Namespace = cmp.Or(to.Namespace, s.GetLabels()[runtimelabels.PodNamespace])
	}
	slices.SortFunc(to.Sandboxes, func(a, b *runtimeapi.PodSandboxStatus) int {
		return newestFirst(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt(), moment(a.GetCreatedAt()), moment(b.GetCreatedAt()))
	})
	return nil
}

func (r *Runtime) inspectContainers(ctx context.Context, to *observed.Status) error {
	list, err := r.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: ofPod(to.UID)},
	})
	if err != nil {
		return fmt.Errorf("list containers: %w", translate(err))
	}
	for _, c := range list.GetContainers() {
		got, err := r.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		if err := translate(err); errors.Is(err, ErrNotFound) {
			continue
		} else if err != nil {
			return fmt.Errorf("inspect container %q: %w", c.GetId(), err)
		}
		status := r.containerStatus(got.GetStatus())
		status.SandboxID = c.GetPodSandboxId() // which the inspection does not tell
		to.Containers = append(to.Containers, status)
		to.Name = cmp.Or(to.Name, c.GetLabels()[runtimelabels.PodName])
		to.Namespace = cmp.Or(to.Namespace, c.GetLabels()[runtimelabels.PodNamespace])
	}
	slices.SortFunc(to.Containers, func(a, b observed.ContainerStatus) int {
		return cmp.Or(newestFirst(a.RestartCount, b.RestartCount, a.CreatedAt, b.CreatedAt), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

func (r *Runtime) containerStatus(c *runtimeapi.ContainerStatus) observed.ContainerStatus {
	notes := c.GetAnnotations()
	return observed.ContainerStatus{
		ID:           c.GetId(),
		Name:         containerName(c.GetLabels(), c.GetMetadata()),
		State:        inspectedState(c),
		CreatedAt:    moment(c.GetCreatedAt()),
		StartedAt:    moment(c.GetStartedAt()),
		FinishedAt:   moment(c.GetFinishedAt()),
		ExitCode:     c.GetExitCode(),
		Reason:       c.GetReason(),
		Message:      message(c),
		Image:        cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage()),
		ImageID:      c.GetImageRef(),
		ImageRef:     c.GetImageId(),
		Hash:         notes[runtimelabels.ContainerHash],
		RestartCount: r.restartCount(c),
		Grace:        grace(notes),
		LogPath:      c.GetLogPath(),
		Resources:    c.GetResources(),
		MemoryAsked:  memoryAsked(notes),
		User:         c.GetUser(),
		Mounts:       c.GetMounts(),
		StopSignal:   c.GetStopSignal(),
	}
}

// inspectedState is a container's state. One whose start was cut off, because who
// asked for it died or was interrupted, has never run, though the runtime has it
// as ended: it is as if it had only been created. Else an ephemeral container, or
// one that is not to be restarted, would be over before it began.
func inspectedState(c *runtimeapi.ContainerStatus) observed.State {
	state := containerState(c.GetState())
	if state == observed.Exited && c.GetStartedAt() == 0 && strings.Contains(c.GetMessage(), context.Canceled.Error()) {
		return observed.Created
	}
	return state
}

// grace is the pod's grace period as annotated, or nil. It is all that is known
// of it once nobody has the pod's specification any more.
func grace(notes map[string]string) *time.Duration {
	seconds, err := strconv.ParseInt(notes[runtimelabels.PodGracePeriod], 10, 32)
	if err != nil || seconds < 0 {
		return nil
	}
	return new(time.Duration(seconds) * time.Second)
}

// memoryAsked is the memory request that the container was created with, or nil.
func memoryAsked(notes map[string]string) *int64 {
	bytes, err := strconv.ParseInt(notes[runtimelabels.MemoryRequest], 10, 64)
	if err != nil {
		return nil
	}
	return &bytes
}

// restartCount is what the annotation says, or else the attempt, which we set
// to the same number.
func (r *Runtime) restartCount(c *runtimeapi.ContainerStatus) int32 {
	attempt := int32(c.GetMetadata().GetAttempt()) //nolint:gosec // a number of restarts
	note, ok := c.GetAnnotations()[runtimelabels.RestartCount]
	if !ok {
		return attempt
	}
	n, err := strconv.ParseInt(note, 10, 32)
	if err != nil {
		r.log.Warn("restart count of a container is not a number; taking its attempt", "container", c.GetId(), "err", err)
		return attempt
	}
	return int32(n)
}

// podIPs returns the addresses of a sandbox, the primary first. A sandbox in
// the host's network has none, and what is not an address is left out, as
// upstream does.
func podIPs(s *runtimeapi.PodSandboxStatus) []string {
	var ips []string
	add := func(ip string) {
		if _, err := netip.ParseAddr(ip); err == nil {
			ips = append(ips, ip)
		}
	}
	add(s.GetNetwork().GetIp())
	for _, more := range s.GetNetwork().GetAdditionalIps() {
		add(more.GetIp())
	}
	return ips
}

func ofPod(uid types.UID) map[string]string {
	return map[string]string{runtimelabels.PodUID: string(uid)}
}
