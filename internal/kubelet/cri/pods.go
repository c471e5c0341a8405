package cri

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// Pods lists every sandbox and container of every pod, joined by the pod UID
// in their labels and sorted by it. Sandboxes and containers without that
// label belong to somebody else and are left out.
//
// The two lists are two moments: a container that comes between them is in
// the next answer.
func (r *Runtime) Pods(ctx context.Context) ([]observed.Pod, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	sandboxes, err := r.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", translate(err))
	}
	containers, err := r.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", translate(err))
	}
	return join(sandboxes.GetItems(), containers.GetContainers()), nil
}

func join(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) []observed.Pod {
	pods := make(map[types.UID]*observed.Pod, len(sandboxes))
	owner := func(labels map[string]string) *observed.Pod {
		uid := types.UID(labels[runtimelabels.PodUID])
		if uid == "" {
			return nil
		}
		if pods[uid] == nil {
			pods[uid] = &observed.Pod{
				UID:       uid,
				Name:      labels[runtimelabels.PodName],
				Namespace: labels[runtimelabels.PodNamespace],
			}
		}
		return pods[uid]
	}
	for _, s := range sandboxes {
		if p := owner(s.GetLabels()); p != nil {
			p.Source = s.GetAnnotations()[staticpod.SourceAnnotation]
			p.Sandboxes = append(p.Sandboxes, observed.Sandbox{
				ID:        s.GetId(),
				Attempt:   s.GetMetadata().GetAttempt(),
				State:     sandboxState(s.GetState()),
				CreatedAt: moment(s.GetCreatedAt()),
			})
		}
	}
	for _, c := range containers {
		if p := owner(c.GetLabels()); p != nil {
			p.Containers = append(p.Containers, observed.Container{
				ID:        c.GetId(),
				Name:      containerName(c.GetLabels(), c.GetMetadata()),
				SandboxID: c.GetPodSandboxId(),
				Attempt:   c.GetMetadata().GetAttempt(),
				State:     containerState(c.GetState()),
				CreatedAt: moment(c.GetCreatedAt()),
			})
		}
	}
	all := make([]observed.Pod, 0, len(pods))
	for _, p := range pods {
		slices.SortFunc(p.Sandboxes, func(a, b observed.Sandbox) int {
			return newestFirst(a.Attempt, b.Attempt, a.CreatedAt, b.CreatedAt)
		})
		slices.SortFunc(p.Containers, func(a, b observed.Container) int {
			return cmp.Or(newestFirst(a.Attempt, b.Attempt, a.CreatedAt, b.CreatedAt), cmp.Compare(a.Name, b.Name))
		})
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b observed.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return all
}

// newestFirst orders two sandboxes, or two containers of one name. Attempts only
// grow; the moments at which they were made do not, as the clock of the machine
// may be set back in between.
func newestFirst[N cmp.Ordered](attempt, other N, created, otherCreated time.Time) int {
	return cmp.Or(cmp.Compare(other, attempt), otherCreated.Compare(created))
}

func sandboxState(s runtimeapi.PodSandboxState) observed.State {
	if s == runtimeapi.PodSandboxState_SANDBOX_READY {
		return observed.Running
	}
	return observed.Exited
}

func containerState(s runtimeapi.ContainerState) observed.State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return observed.Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return observed.Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return observed.Exited
	default:
		return observed.Unknown
	}
}

// containerName prefers the label, which we wrote, to the runtime's metadata.
func containerName(labels map[string]string, meta *runtimeapi.ContainerMetadata) string {
	return cmp.Or(labels[runtimelabels.ContainerName], meta.GetName())
}

// moment converts the runtime's nanoseconds; 0 means never.
func moment(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}
