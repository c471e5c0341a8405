package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

// restarting is a pod whose containers end so often before they stay, as those of
// upstream's node test of garbage are. Its back-off is short by the node's setting.
func restarting(name string, restarts, size int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n", name)
	for i := range size {
		fmt.Fprintf(&b, `  - name: c%d
    image: %s
    command: [sh, -c, 'echo run >> /count/%d; [ $(wc -l < /count/%d) -gt %d ] || exit 0; exec sleep 3600']
    volumeMounts: [{name: count, mountPath: /count}]
`, i, busyboxImage, i, i, restarts)
	}
	b.WriteString("  volumes: [{name: count, emptyDir: {}}]\n")
	return b.String()
}

// kept returns how many containers of each name the runtime has of a pod.
func kept(t *testing.T, client runtimeapi.RuntimeServiceClient, pod string) map[string]int {
	t.Helper()
	list, err := client.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{runtimelabels.PodName: pod}},
	})
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, c := range list.GetContainers() {
		count[c.GetMetadata().GetName()]++
	}
	return count
}

// TestContainersAreCollected holds which containers stay: of a pod that runs, the
// newest dead one of each name beside the one that runs; of one that is gone, none;
// and those that somebody else made, whatever becomes of them.
func TestContainersAreCollected(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.configure("  crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n")
	n.up()
	n.importBusybox()
	in, err := instance.Open(n.root)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := cri.Dial(in.Run("containerd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	foreign := makeForeign(t, client, in)

	pods := []struct {
		name           string
		restarts, size int
	}{{"once", 0, 1}, {"often", 3, 3}}
	for _, p := range pods {
		n.kubectlIn(restarting(p.name, p.restarts, p.size), "create", "-f", "-")
	}
	for _, p := range pods {
		n.eventually(p.name+" was restarted so often", func() error {
			for _, c := range n.pod(p.name).Status.ContainerStatuses {
				if c.RestartCount != int32(p.restarts) || c.State.Running == nil {
					return fmt.Errorf("%s: %d restarts, %+v", c.Name, c.RestartCount, c.State)
				}
			}
			if len(n.pod(p.name).Status.ContainerStatuses) != p.size {
				return errors.New("no status")
			}
			return nil
		})
		n.eventually("one dead container of each name is left", func() error {
			got, each := kept(t, client, p.name), 1+min(p.restarts, 1)
			if len(got) != p.size || slices.ContainsFunc(slices.Collect(maps.Values(got)), func(n int) bool { return n != each }) {
				return fmt.Errorf("%v, want %d of each", got, each)
			}
			return nil
		})
		logs := glob(t, filepath.Join(n.root, "logs", "pods", "default_"+p.name+"_*", "*", "*.log"))
		if want := p.size * (1 + min(p.restarts, 1)); len(logs) != want {
			t.Errorf("%s: logs %q, want %d", p.name, logs, want)
		}
	}
	if out := n.kubectl("logs", "often", "-c", "c0", "--previous"); out != "" {
		t.Errorf("the previous log is %q", out)
	}
	for _, p := range pods {
		n.kubectl("delete", "pod", p.name)
		n.eventually("nothing of it is left", func() error {
			if got := kept(t, client, p.name); len(got) > 0 {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
	}
	foreign.stays(t, client)
	kill(t, n.report().PID)
	n.up()
	n.eventually("the node has looked at all there is", func() error {
		_, err := n.try("status")
		return err
	})
	foreign.stays(t, client)
	foreign.remove(t, client)
}

// A foreignPod was made with the runtime's own tools, without a kubelet's labels.
type foreignPod struct{ sandbox, container string }

func makeForeign(t *testing.T, client runtimeapi.RuntimeServiceClient, in *instance.Instance) foreignPod {
	t.Helper()
	logs := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "by-hand", Namespace: "default", Uid: "by-hand"},
		LogDirectory: logs,
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: in.CgroupParent() + "/by-hand"},
	}
	box, err := client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: box.GetPodSandboxId(), SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: "holdfast.local/demo:latest"},
			Args: []string{"sleep", "forever"}, LogPath: "main.log",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()}); err != nil {
		t.Fatal(err)
	}
	return foreignPod{box.GetPodSandboxId(), made.GetContainerId()}
}

func (f foreignPod) stays(t *testing.T, client runtimeapi.RuntimeServiceClient) {
	t.Helper()
	got, err := client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: f.container})
	if err != nil || got.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("a container that somebody else made is %v, %v", got.GetStatus().GetState(), err)
	}
}

func (f foreignPod) remove(t *testing.T, client runtimeapi.RuntimeServiceClient) {
	t.Helper()
	_, err1 := client.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: f.sandbox})
	_, err2 := client.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: f.sandbox})
	if err := errors.Join(err1, err2); err != nil {
		t.Error(err)
	}
}
