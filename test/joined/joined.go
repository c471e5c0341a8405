// Package joined runs a node agent that is joined to a real control plane, for
// tests: the agent of internal/kubelet, a private containerd with its network, and
// upstream's etcd, API server, controller manager and scheduler. Any of them can
// be stopped, killed and started again under the others.
//
// The agent is a process of its own, the test binary once more, so that it can be
// killed as by a crash. A test package that begins nodes calls [Main] from its
// TestMain. Its credentials are a client certificate of system:node:NAME, as a
// node has that has joined.
//
// A Node's methods are for the goroutine of its test.
package joined

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/mounttree"
	"github.com/holdfast-dev/holdfast/internal/podnet"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/controlplane"
	"github.com/holdfast-dev/holdfast/test/leaks"
)

// Image is an image that every node has: the demo program.
const Image = runtimehost.DemoImage

// Config says which node is wanted. Its zero value is a good one.
type Config struct {
	// Name is the node's. Default: n1.
	Name string
	// Beside is a node whose control plane to join. Default: one is started.
	Beside *Node
	// APIServer are more arguments of the API server that is started.
	APIServer []string
	// ControllerManager are more arguments of the controller manager that is started.
	ControllerManager []string
	// Options are handed to the agent; those of the Node may be changed later.
	Options Options
}

// A Node is a node agent and its machine, joined to a control plane.
type Node struct {
	*controlplane.Test
	Name string
	// Admin is an administrator's client.
	Admin kubernetes.Interface
	// Instance knows the node's folders.
	Instance *instance.Instance
	// Options are the agent's from its next start on.
	Options Options

	t          testing.TB
	kubeconfig string
	audit      string // file: what nodes asked of the API server
	life       *life
}

// A life is the agent's, as all copies of a Node see it.
type life struct {
	agent *process // nil: it does not run
}

// In returns n for a subtest: what goes wrong from there on fails that one.
func (n *Node) In(t testing.TB) *Node {
	sub := *n
	sub.Test, sub.t = n.Test.In(t), t
	return &sub
}

// Start joins a node to a control plane, until t ends, and returns once the API
// has it as ready. It needs "root", "iptables", "ip", "runtime" and "controlplane"
// as testenv.Need does.
func Start(t testing.TB, cfg Config) *Node {
	t.Helper()
	testenv.Need(t, "root", "iptables", "ip", "runtime", "controlplane")
	if cfg.Name == "" {
		cfg.Name = "n1"
	}
	n := &Node{Name: cfg.Name, Options: cfg.Options, t: t, life: &life{}}
	if cfg.Beside != nil {
		n.Test, n.audit = cfg.Beside.Test.In(t), cfg.Beside.audit
	} else {
		n.Test, n.audit = startControlPlane(t, cfg)
	}
	n.Admin = n.Test.Admin()
	n.Instance = newInstance(t, filepath.Join(t.TempDir(), "root"))
	if cfg.Options.Bootstrap {
		n.kubeconfig = n.Instance.Path("kubelet.conf")
	} else {
		n.kubeconfig = n.NodeKubeconfig(cfg.Name)
	}
	t.Cleanup(n.remove)
	for _, dir := range []string{n.ManifestDir(), n.Instance.Path("kubelet"), n.Instance.Path("state"), n.Instance.Path("logs", "pods")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.StartAgent()
	n.AwaitReady()
	return n
}

// newInstance makes an instance in a folder. Others on this machine see its
// subnet as taken.
func newInstance(t testing.TB, root string) *instance.Instance {
	t.Helper()
	in, err := makeInstance(root)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func makeInstance(root string) (in *instance.Instance, err error) {
	unlock, err := instance.DefaultRegister.Lock()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	others, err := instance.DefaultRegister.Others(root)
	if err != nil {
		return nil, err
	}
	var choice podnet.Choice
	for _, other := range others {
		choice.Claims = append(choice.Claims, podnet.Used{Prefix: other.Subnet, By: "the node in " + other.Root})
	}
	in, err = instance.OpenOrCreate(root, func() (p netip.Prefix, err error) {
		if choice.Routes, err = podnet.UsedSubnets(""); err != nil {
			return p, err
		}
		return choice.Choose()
	})
	if err != nil {
		return nil, err
	}
	return in, instance.DefaultRegister.Add(in)
}

// ManifestDir is the folder of the node's static pods.
func (n *Node) ManifestDir() string { return n.Instance.ManifestDir() }

// remove takes the whole node off the machine and looks whether it is gone.
func (n *Node) remove() {
	n.endAgent()
	ctx := context.WithoutCancel(n.t.Context())
	notes, err := n.host().Remove(ctx)
	for _, note := range notes {
		n.t.Log(note)
	}
	err = errors.Join(err, mounttree.Remove(n.Instance.Root), instance.DefaultRegister.Remove(n.Instance))
	if err != nil {
		n.t.Errorf("remove the node: %v", err)
		return
	}
	left, err := leaks.Gone(ctx, leaks.Node{Instance: n.Instance})
	if err != nil || len(left) > 0 {
		n.t.Errorf("left of the node: %q, %v", left, err)
	}
}

// host is the node's private containerd.
func (n *Node) host() *runtimehost.Host {
	return runtimehost.New(hostConfig(n.Instance, slog.New(slog.DiscardHandler)))
}

func hostConfig(in *instance.Instance, log *slog.Logger) runtimehost.Config {
	return runtimehost.Config{
		RootDir: in.Root, RunDir: in.Run(), InstanceID: in.ID,
		Bridge: in.Bridge(), Subnet: in.Subnet, CgroupParent: in.CgroupParent(), Log: log,
	}
}

// must ends the test where err is one.
func (n *Node) must(what string, err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}
