package cri

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/retry"
)

// settle waits until runs says that what was stopped does not run any more.
//
// CRI does not promise that a stop that was answered shows at once. containerd
// answers without waiting if a container's task is gone already, although its end
// is not noted yet: its process ended by itself at that moment, or its grace
// period ran out while its end was being handled. And its list learns of a
// sandbox's end after the stop of it. Whoever stops something looks at it next,
// and would take it for what cannot be stopped.
func settle(ctx context.Context, runs func(context.Context) (bool, error)) error {
	for asked := 1; ; asked++ {
		still, err := runs(ctx)
		if err != nil || !still {
			return err
		}
		if !retry.Sleep(ctx, retry.Pause(asked, 5*time.Millisecond, 500*time.Millisecond)) {
			return fmt.Errorf("the runtime stopped it and says that it still runs: %w", ctx.Err())
		}
	}
}

func (r *Runtime) containerRuns(ctx context.Context, id string) (bool, error) {
	list, err := r.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
	if err != nil {
		return false, translate(err)
	}
	for _, c := range list.GetContainers() {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return true, nil
		}
	}
	return false, nil
}

func (r *Runtime) sandboxRuns(ctx context.Context, id string) (bool, error) {
	list, err := r.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: id}})
	if err != nil {
		return false, translate(err)
	}
	for _, s := range list.GetItems() {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			return true, nil
		}
	}
	return false, nil
}
