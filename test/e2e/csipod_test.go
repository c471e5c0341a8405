package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/ociimage"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// csiDriverPod is a node plugin as real ones are: %[1]s is the pod's name, %[2]s the
// driver's data and %[3]s the kubelet's folder, both where the machine has them.
const csiDriverPod = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: holdfast.local/csiplugin:test
    imagePullPolicy: Never
    args: [-name, pods.example.com, -dir, %[2]q, -registry, %[3]s/plugins_registry]
    securityContext: {privileged: true}
    volumeMounts:
    - {name: data, mountPath: %[2]q}
    - {name: kubelet, mountPath: %[3]q, mountPropagation: Bidirectional}
  volumes:
  - {name: data, hostPath: {path: %[2]q}}
  - {name: kubelet, hostPath: {path: %[3]q}}
`

// TestCSIInPod has a driver that runs in a pod mount volumes for others, and go and
// come while they have them.
func TestCSIInPod(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "root", "go")
	root := sharedFolder(t)
	n := newNodeIn(t, root)
	n.up()
	n.importBusybox()
	n.importCSIPlugin()
	data, folder := t.TempDir(), filepath.Join(root, "kubelet")
	driver := func(pod string) {
		n.kubectlIn(fmt.Sprintf(csiDriverPod, pod, data, folder), "apply", "-f", "-")
		n.running(pod)
	}
	driver("driver")
	n.kubectlIn(fmt.Sprintf(csiObjects, "pods.example.com", "disk", false), "apply", "-f", "-")
	n.busyboxPod("user", "echo -n hello > /disk/file; sleep 1000", "    volumeMounts: [{name: d, mountPath: /disk}]\n", "  volumes: [{name: d, persistentVolumeClaim: {claimName: disk}}]\n")
	user := n.running("user")
	n.eventually("what the pod wrote is in the driver's volume", func() error {
		got, err := os.ReadFile(filepath.Join(data, "volumes/handle-disk/file"))
		return errors.Join(err, wants(string(got), "hello"))
	})

	// The driver is replaced: who has a volume keeps it.
	n.kubectl("delete", "pod", "driver", "--timeout=60s")
	if got, err := n.cat("user", "/disk/file"); err != nil || got != "hello " {
		t.Errorf("without its driver the pod reads %q, %v", got, err)
	}
	n.kubectl("delete", "pod", "user", "--wait=false")
	n.eventually("the pod waits for the driver to take its volume back", func() error {
		out, _ := n.try("status") // an error while something is wrong
		return wants(out, "CSI driver pods.example.com is not registered on this node: start its node plugin")
	})
	driver("driver-2")
	n.eventually("nothing of the pod is left", func() error {
		if _, err := os.Lstat(filepath.Join(folder, "pods", string(user.UID))); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("its folder: %w", err)
		}
		out, err := os.ReadFile("/proc/self/mountinfo")
		if err == nil && strings.Contains(string(out), "handle-disk") {
			err = errors.New("its volume is mounted")
		}
		return err
	})
	if out := n.kubectl("logs", "driver-2"); out != "" {
		t.Errorf("the driver says %s", out)
	}
	n.kubectl("delete", "pod", "driver-2", "--timeout=60s")
}

// importCSIPlugin puts the image of a driver onto the node.
func (n *node) importCSIPlugin() {
	n.t.Helper()
	path := filepath.Join(n.t.TempDir(), "plugin")
	cmd := exec.CommandContext(n.t.Context(), "go", "build", "-o", path, "../csidriver/plugin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	n.importImage(ociimage.Image{
		Refs: []string{"holdfast.local/csiplugin:test"}, Files: map[string]ociimage.File{"/plugin": {Mode: 0o755, Content: program}}, Entrypoint: []string{"/plugin"},
	})
}
