package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBackup takes a node away from the machine and puts it back: the same
// objects, the same identity, the same credentials.
func TestBackup(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.write("web.yaml", servePod("web"))
	n.running("web-edge-1")
	n.kubectl("create", "configmap", "kept", "--from-literal=k=v")
	uid := func() string { return n.kubectl("get", "configmap", "kept", "-o", "jsonpath={.metadata.uid}") }
	before := uid()
	folder := t.TempDir()
	online, offline := filepath.Join(folder, "online.tar.gz"), filepath.Join(folder, "offline.tar.gz")
	n.holdfast("backup", online)
	if info, err := os.Stat(online); err != nil || info.Mode() != 0o600 {
		t.Errorf("the backup: %v, %v; want mode 0600", info, err)
	}
	if out, err := n.try("restore", online); err == nil || !strings.Contains(out, "holdfast down") {
		t.Errorf("restored over a node that runs: %v\n%s", err, out)
	}
	kubeconfig := filepath.Join(folder, "kubeconfig")
	data, err := os.ReadFile(filepath.Join(n.root, "admin.kubeconfig"))
	if err == nil {
		err = os.WriteFile(kubeconfig, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.holdfast("down")
	n.holdfast("backup", offline)
	id := n.report().ID

	for _, file := range []string{online, offline} {
		n.holdfast("uninstall", "--yes")
		if err := os.RemoveAll(filepath.Join(n.root, "manifests")); err != nil {
			t.Fatal(err)
		}
		n.holdfast("restore", file)
		n.up()
		if got := n.report().ID; got != id {
			t.Errorf("the node is %s, was %s", got, id)
		}
		if got := uid(); got != before {
			t.Errorf("the ConfigMap is %s, was %s", got, before)
		}
		n.running("web-edge-1")
		if out, err := run(t, "", kubectlBin, "--kubeconfig", kubeconfig, "get", "nodes"); err != nil {
			t.Errorf("the former kubeconfig: %v\n%s", err, out)
		}
	}

	// A copy beside it has to be somebody else.
	copied := newNode(t)
	if out, err := copied.try("restore", online); err == nil || !strings.Contains(out, "--new-identity") {
		t.Errorf("two nodes of one identity: %v\n%s", err, out)
	}
	copied.holdfast("restore", "--new-identity", online)

	// A damaged store ends the start with what to do, and that works.
	n.holdfast("down")
	if err := os.WriteFile(filepath.Join(n.root, "etcd", "member", "snap", "db"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := n.tryUp(); err == nil || !strings.Contains(out, "holdfast restore --empty") || regexp.MustCompile(`goroutine \d+`).MatchString(out) {
		t.Errorf("a damaged store: %v\n%s", err, out)
	}
	n.holdfast("restore", "--empty")
	n.up()
	n.running("web-edge-1")
	if out, err := n.tryKubectl("", "get", "configmap", "kept"); err == nil {
		t.Errorf("an empty store has objects: %s", out)
	}
}
