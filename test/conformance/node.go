package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

// nodeName is the name of the node under test.
const nodeName = "conformance"

// A Node is a Holdfast node for upstream's tests to run against.
type Node struct {
	Binary string // holdfast
	Root   string // its root folder, empty
	// Mirror is the URL of a registry that has upstream's images.
	Mirror string
	// NoHealth is for a second node on a machine: it has none of the ports that the
	// tests know, and tests that stop it or ask it itself fail.
	NoHealth bool

	endpoint string // of its container runtime
	host     string // of its API: https://…
	token    string // of an administrator
}

// healthPort is where the tests ask whether the kubelet lives, after they have
// stopped or started it.
const healthPort = 10248

// kubeletPort is where the tests ask the kubelet itself.
func (n *Node) kubeletPort() int {
	if n.NoHealth {
		return 0
	}
	return 10250
}

// testHandler is the handler that tests of runtime classes want to be there.
const testHandler = "test-handler"

// settings are what the tests expect a node to be set to.
func (n *Node) settings() map[string]any {
	if n.NoHealth {
		return map[string]any{}
	}
	return map[string]any{"healthzPort": healthPort}
}

// HealthPortFree reports whether a node may have the port of health that the
// tests know: no other run has it.
func HealthPortFree() bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(healthPort))) //nolint:noctx // does not wait
	return err == nil && l.Close() == nil
}

// writeConfig writes the node's configuration, with settings of the kubelet
// beside its own, and returns the file.
func (n *Node) writeConfig(kubelet map[string]any) (path string, err error) {
	runc, err := filepath.Abs(filepath.Join(filepath.Dir(n.Binary), "runtime", "runc"))
	if err != nil {
		return "", err
	}
	section := n.settings()
	maps.Copy(section, kubelet)
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "holdfast.dev/v1alpha1", "kind": "NodeConfiguration",
		"nodeName": nodeName, "apiPort": 0, "kubeletPort": n.kubeletPort(),
		"kubelet": section,
		"images": map[string]any{"mirrors": []any{map[string]any{
			"registry": "registry.k8s.io", "endpoints": []any{map[string]any{"url": n.Mirror}},
		}}},
		"runtimeHandlers": []any{map[string]any{"name": testHandler, "binary": runc}},
	})
	if err != nil {
		return "", err
	}
	path = filepath.Join(n.Root, "node.yaml")
	return path, os.WriteFile(path, text, 0o600)
}

// Start starts the node in its empty folder, with the images, and waits until it
// is ready.
func (n *Node) Start(ctx context.Context, images []ociimage.Image) error {
	if err := writeImages(filepath.Join(n.Root, "images"), images); err != nil {
		return err
	}
	config, err := n.writeConfig(nil)
	if err != nil {
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
	n.endpoint = "unix://" + in.Run("containerd.sock")
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

// configz returns what the node's kubelet works by.
func (n *Node) configz(ctx context.Context) ([]byte, error) {
	return n.holdfast(ctx, "kubectl", "get", "--raw", "/api/v1/nodes/"+nodeName+"/proxy/configz")
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
	cmd := exec.CommandContext(ctx, n.Binary, append([]string{"--root-dir", n.Root, command}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("holdfast %s: %w", command, err), errors.New(stderr.String()))
	}
	return stdout.Bytes(), nil
}
