package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/ociimage"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// busyboxImage is the name of the image with a shell: Debian's static busybox.
const busyboxImage = "holdfast.local/busybox:test"

// importBusybox puts an image with a shell onto the node.
func (n *node) importBusybox() {
	n.t.Helper()
	testenv.Need(n.t, "busybox")
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		n.t.Fatal(err)
	}
	files := map[string]ociimage.File{"/tmp": {Mode: os.ModeDir | 0o777}}
	for _, name := range []string{"busybox", "sh", "cat", "wget", "id", "sleep", "nslookup", "hostname", "ls", "touch", "tar", "stty", "ps", "nc", "chroot", "kill", "test", "wc", "mkdir", "true"} {
		files["/bin/"+name] = ociimage.File{Mode: 0o755, Content: program}
	}
	n.importImage(ociimage.Image{
		Refs: []string{busyboxImage}, Files: files, Cmd: []string{"/bin/sh"}, Env: []string{"PATH=/bin"},
	})
	// On a disk that is nearly full the node would collect it before a pod
	// names it.
	in, err := instance.Open(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	if out, err := run(n.t, "", ctrBin, "--address", in.Run("containerd.sock"), "--namespace", "k8s.io",
		"images", "label", busyboxImage, "io.cri-containerd.pinned=pinned"); err != nil {
		n.t.Fatalf("ctr images label: %v\n%s", err, out)
	}
}

func (n *node) importImage(img ociimage.Image) {
	n.t.Helper()
	in, err := instance.Open(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	archive := filepath.Join(n.t.TempDir(), "image.tar")
	if err := os.WriteFile(archive, archiveOf(n.t, img), 0o644); err != nil {
		n.t.Fatal(err)
	}
	if out, err := run(n.t, "", ctrBin, "--address", in.Run("containerd.sock"), "--namespace", "k8s.io", "images", "import", archive); err != nil {
		n.t.Fatalf("ctr images import: %v\n%s", err, out)
	}
}

func archiveOf(t *testing.T, img ociimage.Image) []byte {
	t.Helper()
	var buf bytes.Buffer
	if _, err := ociimage.Build(&buf, img); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// demoArchive is an archive of the demo program under another name.
func demoArchive(t *testing.T, refs ...string) []byte {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(binDir, "runtime", "demo"))
	if err != nil {
		t.Fatal(err)
	}
	return archiveOf(t, ociimage.Image{
		Refs: refs, Files: map[string]ociimage.File{"/demo": {Mode: 0o755, Content: program}}, Entrypoint: []string{"/demo"}, Cmd: []string{"serve"},
	})
}
