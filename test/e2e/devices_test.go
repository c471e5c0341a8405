package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// diskResource is the one of the plugin of this test.
const diskResource = "example.com/disk"

// TestDevices has a device plugin in a process of its own give devices to pods, while
// it and the agent die.
func TestDevices(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "root")
	n := startNode(t)
	n.importBusybox()
	program := filepath.Join(t.TempDir(), "plugin")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../deviceplugin/plugin").CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	plugin := n.startPlugin(program)
	n.disks("3", "3")

	n.diskPod("two", 2, "")
	two := n.running("two")
	n.eventually("the pod has its devices", func() error {
		return wants(n.kubectl("logs", "two"), "disk1 disk2", "/dev/disk1", "/dev/disk2")
	})
	if got, want := fmt.Sprint(two.Status.ContainerStatuses[0].AllocatedResourcesStatus), "[{example.com/disk [{disk1 Healthy <nil>} {disk2 Healthy <nil>}]}]"; got != want {
		t.Errorf("allocatedResourcesStatus is %s, want %s", got, want)
	}

	n.diskPod("many", 2, "  nodeName: "+n.name+"\n") // more than are left, and nobody counts them before the node
	n.eventually("the pod that wants too many has failed", func() error {
		if p := n.pod("many"); p == nil || p.Status.Phase != v1.PodFailed || p.Status.Reason != "UnexpectedAdmissionError" {
			return fmt.Errorf("it is %+v", p)
		}
		return wants(n.pod("many").Status.Message, "Allocate failed due to requested number of devices unavailable for example.com/disk. Requested: 2, Available: 1, which is unexpected")
	})

	kill(t, n.report().PID)
	n.up()
	api := n.podResources()
	n.eventually("the plugin has registered with the next agent", func() error {
		free, err := api.GetAllocatableResources(t.Context(), &podresourcesv1.AllocatableResourcesRequest{})
		if got := len(free.GetDevices()); err == nil && got != 3 {
			return fmt.Errorf("there are %d devices", got)
		}
		return err
	})
	n.disks("3", "3")
	if got, want := containers(n.running("two")), containers(two); got != want {
		t.Errorf("after the agent was killed the pod has the containers\n%swant\n%s", got, want)
	}
	n.diskPod("rest", 1, "")
	n.running("rest")
	n.eventually("the other pod has the device that is left", func() error { return wants(n.kubectl("logs", "rest"), "disk3") })

	n.endPlugin(plugin)
	n.disks("3", "0")
	n.startPlugin(program)
	n.disks("3", "3")
}

// startPlugin starts the device plugin.
func (n *node) startPlugin(program string) *exec.Cmd {
	n.t.Helper()
	cmd := exec.Command(program, "-dir", filepath.Join(n.root, "kubelet", "device-plugins"), "-resource", diskResource, "-devices", "disk1,disk2,disk3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { n.endPlugin(cmd) })
	return cmd
}

// endPlugin kills the device plugin, if it lives.
func (n *node) endPlugin(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill() // it lives: nobody has waited for it
		_ = cmd.Wait()         // says that it was killed
	}
}

// disks waits until the API's node has so many devices, and so many to give.
func (n *node) disks(capacity, allocatable string) {
	n.t.Helper()
	n.eventually("devices of the node", func() error {
		got := n.kubectl("get", "node", n.name, "-o", `jsonpath={.status.capacity.example\.com/disk} {.status.allocatable.example\.com/disk}`)
		if want := capacity + " " + allocatable; got != want {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
}

// diskPod makes a pod with devices, which prints which they are.
func (n *node) diskPod(name string, count int, spec string) {
	n.t.Helper()
	n.busyboxPod(name, "echo $DEVICES; head -c 1 /dev/disk? | wc -c; ls /dev/disk?; sleep 1000", fmt.Sprintf("    resources: {limits: {%s: %d}}\n", diskResource, count), spec)
}
