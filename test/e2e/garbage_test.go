package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

// upWith starts the node with settings of its kubelet.
func (n *node) upWith(settings string) {
	n.t.Helper()
	n.holdfast("up", "--detach", "--config", n.settingsFile(settings), "--node-name", n.name, "--api-port", "0", "--kubelet-port", "0")
}

// configure has each start of the node take settings of its kubelet.
func (n *node) configure(settings string) {
	n.t.Helper()
	n.flags = append(n.flags, "--config", n.settingsFile(settings))
}

// settingsFile writes a file with settings of the kubelet.
func (n *node) settingsFile(settings string) (path string) {
	n.t.Helper()
	path = filepath.Join(n.t.TempDir(), "node.yaml")
	text := "apiVersion: holdfast.dev/v1alpha1\nkind: NodeConfiguration\nkubelet:\n" + settings
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
	return path
}

// TestImagesAreCollected fills the disk by calling it full: what nobody uses
// goes, what a pod names stays though no container is of it, and the node says
// that this was not enough.
func TestImagesAreCollected(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	const gone, named = "holdfast.local/gone:test", "holdfast.local/named:test"
	for _, ref := range []string{gone, named} {
		n.importImage(ociimage.Image{Refs: []string{ref}, Files: map[string]ociimage.File{"/name": {Mode: 0o644, Content: []byte(ref)}}, Cmd: []string{"/name"}})
	}
	n.write("waits.yaml", `apiVersion: v1
kind: Pod
metadata: {name: waits}
spec:
  containers:
  - {name: main, image: holdfast.local/named:test, volumeMounts: [{name: v, mountPath: /v}]}
  volumes:
  - {name: v, configMap: {name: not-there-yet}}
`)
	n.eventually("the pod waits", func() error {
		if n.pod("waits-edge-1") == nil {
			return errors.New("no such pod")
		}
		return nil
	})
	n.holdfast("down")
	n.upWith("  imageGCHighThresholdPercent: 1\n  imageGCLowThresholdPercent: 0\n")
	n.eventually("the unused image is removed", func() error {
		if images := n.images(); strings.Contains(images, gone) {
			return fmt.Errorf("still there:\n%s", images)
		}
		return nil
	})
	if err := wants(n.images(), named, "holdfast.local/pause:1", "holdfast.local/demo:latest"); err != nil {
		t.Error(err)
	}
	n.eventually("the event", func() error { return wants(n.kubectl("get", "events", "-A"), "FreeDiskSpaceFailed") })
	metrics := n.kubectl("get", "--raw", "/api/v1/nodes/edge-1/proxy/metrics")
	if err := wants(metrics, `kubelet_image_garbage_collected_total{reason="space"} 1`); err != nil {
		t.Error(err)
	}
}

// images returns the names of the images on the node.
func (n *node) images() string {
	n.t.Helper()
	in, err := instance.Open(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	out, err := run(n.t, "", ctrBin, "--address", in.Run("containerd.sock"), "--namespace", "k8s.io", "images", "list", "-q")
	if err != nil {
		n.t.Fatalf("ctr images list: %v\n%s", err, out)
	}
	return out
}

// TestLogsAreRotated follows a log over several rotations: no line is missing
// or comes twice, and no more files are left than there may be.
func TestLogsAreRotated(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.upWith("  containerLogMaxSize: 64Ki\n  containerLogMaxFiles: 3\n  containerLogMonitorInterval: 3s\n")
	n.importBusybox()
	const lines = 8000
	n.write("writer.yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: %s
    command: [sh, -c, 'echo begin; while [ ! -e /tmp/go ]; do sleep 0.1; done; i=0;
      while [ $i -lt %d ]; do i=$((i+1)); echo line $i; [ $((i %% 100)) -ne 0 ] || sleep 0.2; done']
`, busyboxImage, lines))
	n.running("writer-edge-1")

	followed := filepath.Join(t.TempDir(), "followed")
	out, err := os.Create(followed)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	follow := exec.CommandContext(t.Context(), kubectlBin, "--kubeconfig", filepath.Join(n.root, "admin.kubeconfig"), "logs", "-f", "writer-edge-1")
	follow.Stdout, follow.Stderr = out, out
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	got := func() string {
		text, err := os.ReadFile(followed)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	n.eventually("the log is followed", func() error { return wants(got(), "begin\n") })
	n.kubectl("exec", "writer-edge-1", "--", "touch", "/tmp/go")
	if err := follow.Wait(); err != nil {
		t.Errorf("kubectl logs -f: %v", err)
	}
	var want strings.Builder
	want.WriteString("begin\n")
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if text := got(); text != want.String() {
		t.Errorf("followed %d lines, want %d; the first difference is at %s", strings.Count(text, "\n"), lines+1, firstDifference(text, want.String()))
	}

	files, err := filepath.Glob(filepath.Join(n.root, "logs", "pods", "default_writer-edge-1_*", "main", "0.log*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 || !strings.HasSuffix(files[1], ".gz") {
		t.Errorf("files %q, want the current one, one that is compressed and the newest that was rotated", files)
	}
}

// firstDifference returns the first line of got that is not that of want.
func firstDifference(got, want string) string {
	theirs := strings.Split(want, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(theirs) || line != theirs[i] {
			return fmt.Sprintf("line %d: %q", i, line)
		}
	}
	return "the end"
}
