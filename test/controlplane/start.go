package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// patience bounds every wait. It is no measure of speed: it only keeps a
// broken control plane from hanging the run.
const patience = 3 * time.Minute

// A Test is a Cluster that belongs to a test: what goes wrong fails the test.
type Test struct {
	*Cluster
	t testing.TB
}

// Start runs a control plane until t ends, and returns once it is ready. It
// needs "controlplane" as testenv.Need does. cfg.Dir and cfg.Program may be
// left out; without a Dir the data is removed in the end.
func Start(t testing.TB, cfg Config) *Test {
	t.Helper()
	cfg.Program = testenv.ControlPlane(t)
	if cfg.Dir == "" {
		dir, err := os.MkdirTemp("", "controlplane-") //nolint:usetesting // t.TempDir's path may be too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		cfg.Dir = dir
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // it ends in its turn among the clean-ups
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("control plane: %v", err)
		}
		if t.Failed() {
			for _, name := range components {
				t.Logf("the log of %s ends so:\n%s", name, c.Tail(name))
			}
		}
	})
	select {
	case <-c.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("control plane: %v", err)
	case <-time.After(patience):
		t.Fatalf("the control plane is not ready after %v", patience)
	}
	return &Test{c, t}
}

// In returns c for a subtest: what goes wrong from there on fails that one.
func (c *Test) In(t testing.TB) *Test { return &Test{c.Cluster, t} }

// Clientset returns the client of a kubeconfig file of this cluster.
func (c *Test) Clientset(kubeconfig string) kubernetes.Interface {
	c.t.Helper()
	cfg, err := c.Config(kubeconfig)
	if err != nil {
		c.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// Admin returns the client of an administrator.
func (c *Test) Admin() kubernetes.Interface {
	c.t.Helper()
	return c.Clientset(c.Kubeconfig())
}

// Stop ends components, last named first ended: an outage, in which clients of the
// API server are refused.
func (c *Test) Stop(names ...Component) {
	c.t.Helper()
	for i := range names {
		c.must(c.StopComponent(names[len(names)-1-i]))
	}
}

// Kill ends components as a crash does.
func (c *Test) Kill(names ...Component) {
	c.t.Helper()
	for _, name := range names {
		c.must(c.KillComponent(name))
	}
}

// Resume starts components that were stopped or killed, on the same data, and
// waits until they are healthy.
func (c *Test) Resume(names ...Component) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for _, name := range names {
		c.must(c.StartComponent(ctx, name))
	}
}

// Freeze makes components hang: connections are taken, and nobody answers.
func (c *Test) Freeze(names ...Component) {
	c.t.Helper()
	for _, name := range names {
		c.must(c.FreezeComponent(name))
	}
}

// Thaw ends what Freeze began.
func (c *Test) Thaw(names ...Component) {
	c.t.Helper()
	for _, name := range names {
		c.must(c.ThawComponent(name))
	}
}

func (c *Test) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// NodeKubeconfig returns the kubeconfig file of a kubelet: a certificate of
// system:node:NAME, as a node has that has joined.
func (c *Test) NodeKubeconfig(name string) string {
	c.t.Helper()
	file, err := c.Client("node-"+name, "system:node:"+name, user.NodesGroup)
	c.must(err)
	return file
}

// Node makes a Node that claims to be ready, with room for pods and nobody behind
// it, and returns the kubeconfig file of its kubelet. With its client a test plays
// the kubelet. The controllers call it unknown once it was silent for their
// grace period (40 s or so); a Lease in kube-node-lease keeps it.
func (c *Test) Node(name string) (kubeconfig string) {
	c.t.Helper()
	kubeconfig = c.NodeKubeconfig(name)
	nodes := c.Clientset(kubeconfig).CoreV1().Nodes()
	ctx := c.t.Context()
	_, err := nodes.Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
	}, metav1.CreateOptions{})
	c.must(err)
	now := metav1.Now()
	room := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("4Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	status, err := json.Marshal(map[string]any{"status": corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			Message: "played by a test", LastHeartbeatTime: now, LastTransitionTime: now,
		}},
	}})
	c.must(err)
	// A patch: a controller may write to the Node at the same time.
	_, err = nodes.PatchStatus(ctx, name, status)
	c.must(err)
	return kubeconfig
}

// Eventually asks until ok reports that what is true, and fails the test if
// that takes too long: it then shows the last error of ok.
func (c *Test) Eventually(what string, ok func(context.Context) (bool, error)) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(healthPause)
	defer ticker.Stop()
	for {
		done, err := ok(ctx)
		if done {
			return
		}
		select {
		case <-ctx.Done():
			c.t.Fatal(fmt.Errorf("%s: not after %v; last error: %w", what, patience, err))
		case <-ticker.C:
		}
	}
}
