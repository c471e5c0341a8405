package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-dev/holdfast/internal/runtimehost"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/controlplane"
)

// The programs under test, built by "make build" and test/run.
var (
	holdfastBin = mustAbs(filepath.Join("..", "..", "bin", "holdfast"))
	kubeletBin  = mustAbs(filepath.Join("..", "..", "bin", "holdfast-kubelet"))
	kubectlBin  = mustAbs(filepath.Join("..", "..", "bin", "tools", "kubectl"))
)

const demoImage = runtimehost.DemoImage

func mustAbs(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		panic(err)
	}
	return abs
}

// patience bounds one command. It is no measure of speed.
const patience = 4 * time.Minute

// auditPolicy has the API server note what nodes ask, without the contents.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["` + user.NodesGroup + `"]}
- {level: None}
`

// A cluster is a control plane and two machines, n1 and n2.
type cluster struct {
	*controlplane.Test
	t       testing.TB
	admin   kubernetes.Interface
	network *network
	nodes   []*machine
	audit   string // file
}

// newCluster starts a cluster whose nodes are ready, until t ends.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	testenv.Need(t, "root", "iptables", "ip", "runtime", "controlplane", "busybox", "nsenter")
	for _, program := range []string{holdfastBin, kubeletBin, kubectlBin} {
		if _, err := os.Stat(program); err != nil {
			t.Fatalf("%v: make build bin/tools/kubectl", err)
		}
	}
	c := &cluster{t: t, network: newNetwork(t)}
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	c.audit = filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Test = controlplane.Start(t, controlplane.Config{
		Address: c.network.host().String(),
		Arguments: map[controlplane.Component][]string{
			controlplane.APIServer: {"--audit-policy-file=" + policy, "--audit-log-path=" + c.audit},
			// A node is given up sooner than by default, though not as soon as a slow
			// machine may make it look dead.
			controlplane.ControllerManager: {"--node-monitor-grace-period=30s", "--node-monitor-period=2s"},
		},
	})
	c.admin = c.Admin()
	// Both programs are the kubelet.
	for i, program := range [][]string{{holdfastBin, "kubelet"}, {kubeletBin}} {
		m := newMachine(t, c.Test, fmt.Sprintf("n%d", i+1), c.network, program...)
		c.nodes = append(c.nodes, m)
		m.startAgent()
	}
	for _, m := range c.nodes {
		c.awaitReady(m)
		m.importBusybox()
	}
	return c
}

// in returns c for a subtest: what goes wrong from there on fails that one.
func (c *cluster) in(t testing.TB) *cluster {
	sub := *c
	sub.t, sub.Test = t, c.In(t)
	return &sub
}

// node returns the machine of a Node.
func (c *cluster) node(name string) *machine {
	c.t.Helper()
	i := slices.IndexFunc(c.nodes, func(m *machine) bool { return m.name == name })
	if i < 0 {
		c.t.Fatalf("there is no node %q", name)
	}
	return c.nodes[i]
}

// other returns the machine that is not m.
func (c *cluster) other(m *machine) *machine {
	if c.nodes[0] == m {
		return c.nodes[1]
	}
	return c.nodes[0]
}

// awaitReady waits until pods may be put on a node.
func (c *cluster) awaitReady(m *machine) {
	c.t.Helper()
	c.Eventually(m.name+" is ready", func(ctx context.Context) (bool, error) {
		select {
		case <-m.agent.done:
			c.t.Fatalf("the agent of %s has ended: %v", m.name, m.agent.err)
		default:
		}
		node, err := c.admin.CoreV1().Nodes().Get(ctx, m.name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		ready := condition(node, v1.NodeReady)
		return ready.Status == v1.ConditionTrue && len(node.Spec.Taints) == 0, fmt.Errorf("%s: %s, taints %v", ready.Reason, ready.Message, node.Spec.Taints)
	})
}

func condition(node *v1.Node, kind v1.NodeConditionType) v1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.NodeCondition{Reason: "no condition " + string(kind)}
}

// try runs a program of ours and returns what it prints.
func (c *cluster) try(stdin, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "HOME="+filepath.Dir(c.audit))
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// kubectl runs kubectl, which must succeed.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	return c.kubectlIn("", args...)
}

func (c *cluster) kubectlIn(stdin string, args ...string) string {
	c.t.Helper()
	out, err := c.try(stdin, kubectlBin, args...)
	if err != nil {
		c.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// apply makes objects of YAML.
func (c *cluster) apply(text string) {
	c.t.Helper()
	c.kubectlIn(text, "apply", "-f", "-")
}

// eventually waits until a kubectl command prints what ok wants.
func (c *cluster) eventually(what string, ok func(out string) bool, args ...string) string {
	c.t.Helper()
	var out string
	c.Eventually(what, func(context.Context) (_ bool, err error) {
		out, err = c.try("", kubectlBin, args...)
		if err != nil {
			return false, fmt.Errorf("%w: %s", err, out)
		}
		return ok(out), fmt.Errorf("kubectl %s says %q", strings.Join(args, " "), out)
	})
	return out
}

// prints is an ok of eventually.
func prints(want string) func(string) bool {
	return func(out string) bool { return strings.TrimSpace(out) == want }
}

// pods returns the pods with a label app that are not being deleted and are ready.
func (c *cluster) pods(ctx context.Context, app string) ([]v1.Pod, error) {
	list, err := c.admin.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p v1.Pod) bool {
		return p.DeletionTimestamp != nil || !slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		})
	}), nil
}

// awaitPods waits until n pods with a label app are ready that all are as ok wants;
// nil: as they are.
func (c *cluster) awaitPods(app string, n int, ok func(v1.Pod) bool) []v1.Pod {
	c.t.Helper()
	var pods []v1.Pod
	c.Eventually(fmt.Sprintf("%d pods of %s are ready", n, app), func(ctx context.Context) (_ bool, err error) {
		pods, err = c.pods(ctx, app)
		var seen []string
		for _, p := range pods {
			seen = append(seen, p.Name+" on "+p.Spec.NodeName)
		}
		bad := ok != nil && slices.ContainsFunc(pods, func(p v1.Pod) bool { return !ok(p) })
		return err == nil && len(pods) == n && !bad, errors.Join(err, fmt.Errorf("there are %q", seen))
	})
	return pods
}

// refused returns what nodes asked and may not. The authorizer and the admission may
// hear of a pod's binding after its node: what was allowed when it was asked again
// is none of that.
func (c *cluster) refused() []string {
	c.t.Helper()
	data, err := os.ReadFile(c.audit)
	if err != nil {
		c.t.Fatal(err)
	}
	bad := map[string]string{}
	asked := 0
	for line := range bytes.Lines(data) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			c.t.Fatalf("audit log: %v", err)
		}
		if e.ResponseStatus == nil {
			continue
		}
		asked++
		path, _, _ := strings.Cut(e.RequestURI, "?")
		key := e.User.Username + " " + path
		switch {
		case e.ResponseStatus.Code == http.StatusUnauthorized || e.ResponseStatus.Code == http.StatusForbidden:
			bad[key] = fmt.Sprintf("%s %s of %s: %s", e.Verb, e.RequestURI, e.User.Username, e.ResponseStatus.Message)
		case e.ResponseStatus.Code < http.StatusMultipleChoices:
			delete(bad, key)
		}
	}
	if asked == 0 {
		c.t.Error("the audit log has no request of a node")
	}
	return slices.Sorted(maps.Values(bad))
}
