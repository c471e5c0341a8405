package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// dropImage puts a file into the folder of image archives, as a copy does.
func (n *node) dropImage(name string, data []byte) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.root, "images", name), data, 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// statusSays waits until the status has all these texts in it.
func (n *node) statusSays(texts ...string) {
	n.t.Helper()
	n.eventually("status", func() error {
		out, _ := n.try("status")
		return wants(out, texts...)
	})
}

// TestImageArchives runs images from the folder of archives, without a registry.
func TestImageArchives(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	const never, pulls, wrong = "reg.invalid/never:1", "reg.invalid/pulls:1", "reg.invalid/wrong:1"

	// Pods that wait for an image start when it appears, long before their
	// back-off ends.
	n.kubectl("run", "never", "--image="+never, "--image-pull-policy=Never")
	n.kubectl("run", "pulls", "--image="+pulls)
	n.eventually("both wait", func() error {
		return wants(n.kubectl("get", "pods"), "ErrImageNeverPull", "ImagePullBackOff")
	})
	n.dropImage("app.tar", demoArchive(t, never, pulls))
	n.running("never")
	n.running("pulls")
	n.statusSays("app.tar", "imported", never+" "+pulls, "Nothing is wrong.")

	// A broken archive is one fault, told everywhere, and heals when it is replaced.
	whole := demoArchive(t, wrong)
	n.dropImage("broken.tar", whole[:len(whole)/2])
	n.statusSays("broken.tar", "wrong", "images/broken.tar: the archive is incomplete", "copy it again")
	n.eventually("an event", func() error {
		return wants(n.kubectl("get", "events"), "InvalidImageArchive")
	})
	n.dropImage("broken.tar", whole)
	n.statusSays(wrong, "Nothing is wrong.")
	n.eventually("an event of its healing", func() error {
		return wants(n.kubectl("get", "events"), "ImageArchiveHealed")
	})
	n.dropImage("other.tar", demoArchive(t, "v1"))
	n.statusSays("no image in the archive has a full name", `only the tag "v1"`, "docker save")
	if err := os.Remove(filepath.Join(n.root, "images", "other.tar")); err != nil {
		t.Fatal(err)
	}

	// A restart imports nothing again, and the pods go on.
	before := containers(n.pod("never"))
	kill(t, n.report().PID)
	n.up()
	n.statusSays("app.tar", "imported")
	if got := containers(n.running("never")); got != before {
		t.Errorf("got containers %s, want %s", got, before)
	}
	log, err := os.ReadFile(filepath.Join(n.root, "logs", "holdfast.log"))
	if err != nil {
		t.Fatal(err)
	}
	const imported = `msg="images are imported"`
	got := 0
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, imported) && strings.Contains(line, "app.tar") {
			got++
		}
	}
	if got != 1 {
		t.Errorf("app.tar was imported %d times, want once", got)
	}
	n.kubectl("delete", "pod", "never", "pulls", "--timeout=3m")
}
