package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

// nodeName is the name of the node under test.
const nodeName = "conformance"

// A Node is a Holdfast node for upstream's tests to run against.
type Node struct {
	Binary string // holdfast
	Root   string // its root folder, empty

	endpoint string // of its container runtime
	host     string // of its API: https://…
	token    string // of an administrator
}

// nodeConfig is what the tests expect a node to be set to.
const nodeConfig = `apiVersion: holdfast.dev/v1alpha1
kind: NodeConfiguration
nodeName: ` + nodeName + `
apiPort: 0
kubeletPort: 0
`

// Start starts the node in its empty folder, with the images, and waits until it
// is ready.
func (n *Node) Start(ctx context.Context, images []ociimage.Image) error {
	if err := writeImages(filepath.Join(n.Root, "images"), images); err != nil {
		return err
	}
	config := filepath.Join(n.Root, "node.yaml")
	if err := os.WriteFile(config, []byte(nodeConfig), 0o600); err != nil {
		return err
	}
	if _, err := n.holdfast(ctx, "up", "--detach", "--config", config); err != nil {
		return err
	}
	return n.Connect(ctx)
}

// Connect learns how a node that runs is reached.
func (n *Node) Connect(ctx context.Context) error {
	in, err := instance.Open(n.Root)
	if err != nil {
		return err
	}
	n.endpoint = "unix://" + in.Run("containerd", "containerd.sock")
	text, err := n.holdfast(ctx, "kubeconfig", "--user", "conformance", "--role", "cluster-admin", "--expires", "24h")
	if err != nil {
		return err
	}
	access, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return fmt.Errorf("access to the node's API: %w", err)
	}
	n.host, n.token = access.Host, access.BearerToken
	return nil
}

// Remove stops the node and removes it, after its log was copied to a file. What
// is left of its folder is the caller's. A node that never was is no error.
func (n *Node) Remove(ctx context.Context, logFile string) error {
	if _, err := instance.Open(n.Root); errors.Is(err, instance.ErrNone) {
		return nil
	}
	log, err := os.ReadFile(filepath.Join(n.Root, "logs", "holdfast.log"))
	if err == nil {
		err = os.WriteFile(logFile, log, 0o644)
	}
	_, removed := n.holdfast(ctx, "uninstall", "--yes")
	return errors.Join(err, removed)
}

// holdfast runs a command on the node and returns its standard output.
func (n *Node) holdfast(ctx context.Context, command string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, n.Binary, append([]string{command, "--root-dir", n.Root}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("holdfast %s: %w", command, err), errors.New(stderr.String()))
	}
	return stdout.Bytes(), nil
}
