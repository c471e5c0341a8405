package leaks

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

// Owners are what things may be there for.
type owners struct {
	pods     map[types.UID]bool
	ids      map[string]bool // containers and sandboxes of the pods
	ready    map[string]bool // sandboxes that run
	networks map[string]bool // sandboxes that run in a network of their own
}

// askRuntime returns what the runtime has of pods, and what it has of others or
// more than once.
func askRuntime(ctx context.Context, socket string, pods []types.UID) (own *owners, left []string, err error) {
	conn, err := cri.Dial(socket)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	sandboxes, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, nil, fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}

	own = &owners{map[types.UID]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, uid := range pods {
		own.pods[uid] = true
	}
	running := map[string]string{}
	once := func(key, id string) {
		if other, twice := running[key]; twice {
			left = append(left, fmt.Sprintf("%s runs twice: %s, %s", key, other, id))
		}
		running[key] = id
	}
	for _, s := range sandboxes.GetItems() {
		uid := s.GetMetadata().GetUid()
		if !own.pods[types.UID(uid)] {
			left = append(left, fmt.Sprintf("sandbox %s: no such pod: %s", s.GetId(), s.GetMetadata()))
			continue
		}
		own.ids[s.GetId()] = true
		if s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		once("sandbox of "+uid, s.GetId())
		own.ready[s.GetId()] = true
		status, err := client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
		if err != nil {
			return nil, nil, fmt.Errorf("sandbox %s: %w", s.GetId(), err)
		}
		if status.GetStatus().GetLinux().GetNamespaces().GetOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE {
			own.networks[s.GetId()] = true
		}
	}
	for _, c := range containers.GetContainers() {
		uid := c.GetLabels()[runtimelabels.PodUID]
		if !own.pods[types.UID(uid)] {
			left = append(left, fmt.Sprintf("container %s: no such pod: %s of %s", c.GetId(), c.GetMetadata(), uid))
			continue
		}
		own.ids[c.GetId()] = true
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			once("container "+c.GetMetadata().GetName()+" of "+uid, c.GetId())
		}
	}
	return own, left, nil
}
