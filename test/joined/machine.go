package joined

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
	"github.com/holdfast-dev/holdfast/internal/mounttree"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/leaks"
)

// A Container is one that the runtime has.
type Container struct {
	Pod     types.NamespacedName
	UID     types.UID // of the pod
	Name    string
	ID      string
	Attempt uint32
	Running bool
}

// Containers returns what the runtime has, ordered by pod, name and attempt.
func (n *Node) Containers(ctx context.Context) (all []Container, err error) {
	conn, err := cri.Dial(n.host().Endpoint())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	answer, err := runtimeapi.NewRuntimeServiceClient(conn).ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	for _, c := range answer.GetContainers() {
		labels := c.GetLabels()
		all = append(all, Container{
			Pod:  types.NamespacedName{Namespace: labels[runtimelabels.PodNamespace], Name: labels[runtimelabels.PodName]},
			UID:  types.UID(labels[runtimelabels.PodUID]),
			Name: c.GetMetadata().GetName(), ID: c.GetId(), Attempt: c.GetMetadata().GetAttempt(),
			Running: c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING,
		})
	}
	slices.SortFunc(all, func(a, b Container) int {
		return cmp.Or(cmp.Compare(a.Pod.String(), b.Pod.String()), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt))
	})
	return all, nil
}

// Running returns the IDs of the running containers, each by NAMESPACE/POD/NAME.
// Two of one key fail the test.
func (n *Node) Running() map[string]string {
	n.t.Helper()
	running, err := n.running(n.t.Context())
	n.must("ask the runtime", err)
	return running
}

func (n *Node) running(ctx context.Context) (map[string]string, error) {
	n.t.Helper()
	all, err := n.Containers(ctx)
	running := map[string]string{}
	for _, c := range all {
		key := c.Pod.String() + "/" + c.Name
		if !c.Running {
			continue
		}
		if other, twice := running[key]; twice {
			n.t.Fatalf("container %s runs twice: %s and %s", key, other, c.ID)
		}
		running[key] = c.ID
	}
	return running, err
}

// AwaitRunning waits until a container of each key runs, as Running has them, and
// returns all that do. The API need not answer.
func (n *Node) AwaitRunning(keys ...string) map[string]string {
	n.t.Helper()
	var running map[string]string
	n.Eventually(fmt.Sprintf("%q run", keys), func(ctx context.Context) (_ bool, err error) {
		running, err = n.running(ctx)
		for _, key := range keys {
			if running[key] == "" {
				return false, errors.Join(err, fmt.Errorf("what runs is %v", running))
			}
		}
		return err == nil, err
	})
	return running
}

// AwaitNotRunning waits until no container of a key runs, as Running has them.
func (n *Node) AwaitNotRunning(key string) {
	n.t.Helper()
	n.Eventually(key+" does not run", func(ctx context.Context) (bool, error) {
		running, err := n.running(ctx)
		return err == nil && running[key] == "", errors.Join(err, fmt.Errorf("what runs is %v", running))
	})
}

// KillRuntime ends containerd as a crash does. Containers go on under their
// shims, and the agent starts containerd again.
func (n *Node) KillRuntime() {
	n.t.Helper()
	pid := leaks.Containerd(n.Instance)
	if pid == 0 {
		n.t.Fatal("containerd does not run")
	}
	n.must("kill containerd", syscall.Kill(pid, syscall.SIGKILL))
}

// Reboot does to the node what a power cut does to its machine: the agent,
// containerd, shims and containers are killed, nothing is mounted, what the kernel
// and /run kept is gone. StartAgent is the next boot.
func (n *Node) Reboot() {
	n.t.Helper()
	if n.life.agent != nil {
		n.KillAgent()
	}
	if leaks.Containerd(n.Instance) != 0 {
		n.KillRuntime() // first: it would clean up behind the others
	}
	n.must("kill what runs", n.host().Stop(n.t.Context()))
	for _, dir := range []string{n.Instance.Root, n.Instance.Run()} {
		n.Eventually("nothing is mounted below "+dir, func(context.Context) (bool, error) {
			err := mounttree.Unmount(dir)
			return err == nil, err
		})
	}
	n.must("clear /run", mounttree.Remove(n.Instance.Run()))
	results, err := filepath.Glob("/var/lib/cni/results/holdfast-" + n.Instance.ID + "-*")
	n.must("find the network's results", err)
	for _, file := range results {
		n.must("clear the network's results", os.Remove(file))
	}
	// The pods' own ends went with their namespaces.
	if out, err := exec.CommandContext(n.t.Context(), "ip", "link", "delete", n.Instance.Bridge()).CombinedOutput(); err != nil {
		n.t.Fatalf("remove the bridge: %v: %s", err, out)
	}
}

// AwaitNoLeaks waits until the machine has nothing of pods but of those.
func (n *Node) AwaitNoLeaks(pods ...types.UID) {
	n.t.Helper()
	look := leaks.Node{Instance: n.Instance, Ctr: filepath.Join(testenv.RuntimeDir(n.t), "ctr")}
	n.Eventually("nothing is left of pods that are gone", func(ctx context.Context) (bool, error) {
		left, err := leaks.Left(ctx, look, pods)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%q", left)
		}
		return err == nil, err
	})
}
