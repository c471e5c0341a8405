package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// The programs under test, built by "make build" and test/run.
var (
	binDir      = filepath.Join("..", "..", "bin")
	holdfastBin = mustAbs(filepath.Join(binDir, "holdfast"))
	kubectlBin  = mustAbs(filepath.Join(binDir, "tools", "kubectl"))
	ctrBin      = mustAbs(filepath.Join(binDir, "runtime", "ctr"))
)

func mustAbs(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		panic(err)
	}
	return abs
}

// patience bounds every wait. It is no measure of speed: it only keeps a
// broken node from hanging the run. A machine that does much else is ten times
// slower.
const patience = 4 * time.Minute

// A node is one instance under test, in a root folder of its own.
type node struct {
	t     *testing.T
	root  string
	name  string
	flags []string // of up, beside those that every test has
	env   []string // of every command, beside the test's own
	netns string   // the network namespace that it lives in; empty: the host's

	instances map[string]*instance.Instance // by ID, that it has been
}

// newNode returns a node that does not run yet. It is uninstalled when the
// test ends.
func newNode(t *testing.T) *node {
	t.Helper()
	testenv.Need(t, "root")
	for _, bin := range []string{holdfastBin, kubectlBin, ctrBin} {
		if _, err := os.Stat(bin); err != nil {
			t.Fatalf("%v (run \"make e2e\", which builds it)", err)
		}
	}
	root, err := os.MkdirTemp("", "holdfast-e2e-") //nolint:usetesting // outlives the test's own clean-up: uninstall comes first
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Errorf("remove what uninstall keeps: %v", err)
		}
	})
	return newNodeIn(t, root)
}

// newNodeIn is newNode with a root folder that the caller made and removes.
func newNodeIn(t *testing.T, root string) *node {
	t.Helper()
	n := &node{t: t, root: root, name: "edge-1", instances: map[string]*instance.Instance{}}
	t.Cleanup(func() {
		n.t = t // a step may have lent its own
		if t.Failed() {
			n.dump()
		} else {
			n.leaksNothing()
		}
		if _, err := instance.Open(n.root); err == nil {
			if out, err := n.try("uninstall", "--yes"); err != nil {
				t.Errorf("uninstall: %v\n%s", err, out)
			}
		}
		n.isGone()
	})
	return n
}

// startNode returns a node that is ready.
func startNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.up()
	return n
}

// up starts the node in the background and returns what the command printed.
func (n *node) up() string {
	n.t.Helper()
	out, err := n.tryUp()
	if err != nil {
		n.t.Fatalf("holdfast up: %v\n%s", err, out)
	}
	return out
}

func (n *node) tryUp() (string, error) {
	n.t.Helper()
	out, err := n.try(append([]string{"up", "--detach", "--node-name", n.name, "--api-port", "0", "--kubelet-port", "0"}, n.flags...)...)
	if in, errOpen := instance.Open(n.root); errOpen == nil {
		n.instances[in.ID] = in
	}
	return out, err
}

// dump shows what a person would look at after a failure.
func (n *node) dump() {
	for _, args := range [][]string{{"status", "-o", "wide"}, {"kubectl", "get", "pods,events", "-A", "-o", "wide"}} {
		out, _ := n.try(args...)
		n.t.Logf("holdfast %s:\n%s", strings.Join(args, " "), out)
	}
	for _, name := range []string{"holdfast.log", "containerd.log"} {
		data, err := os.ReadFile(filepath.Join(n.root, "logs", name))
		if err != nil {
			continue
		}
		if len(data) > 12000 {
			data = data[len(data)-12000:]
		}
		n.t.Logf("%s:\n%s", name, data)
	}
}

// try runs holdfast for this node and returns everything that it printed.
func (n *node) try(args ...string) (string, error) {
	return n.run("", holdfastBin, append([]string{"--root-dir", n.root}, args...)...)
}

// holdfast is try for a command that must succeed.
func (n *node) holdfast(args ...string) string {
	n.t.Helper()
	out, err := n.try(args...)
	if err != nil {
		n.t.Fatalf("holdfast %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// kubectl runs plain kubectl with the administrator's kubeconfig.
func (n *node) kubectl(args ...string) string {
	n.t.Helper()
	return n.kubectlIn("", args...)
}

// kubectlIn is kubectl with input.
func (n *node) kubectlIn(stdin string, args ...string) string {
	n.t.Helper()
	out, err := n.tryKubectl(stdin, args...)
	if err != nil {
		n.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (n *node) tryKubectl(stdin string, args ...string) (string, error) {
	return n.run(stdin, kubectlBin, append([]string{"--kubeconfig", filepath.Join(n.root, "admin.kubeconfig")}, args...)...)
}

// run runs a program where the node lives.
func (n *node) run(stdin, program string, args ...string) (string, error) {
	n.t.Helper()
	if n.netns != "" {
		args = append([]string{"--net=/run/netns/" + n.netns, program}, args...)
		program = "nsenter"
	}
	return runEnv(n.t, n.env, stdin, program, args...)
}

// run runs a program to its end and returns what it printed, bounded by
// patience.
func run(t *testing.T, stdin, program string, args ...string) (string, error) {
	t.Helper()
	return runEnv(t, nil, stdin, program, args...)
}

// runEnv is run with more in the environment.
func runEnv(t *testing.T, env []string, stdin, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// write puts a file into the manifest folder as an editor does: it writes
// another file and renames it.
func (n *node) write(name, content string) {
	n.t.Helper()
	dir := filepath.Join(n.root, "manifests")
	tmp := filepath.Join(dir, "."+name+".swp")
	err := os.WriteFile(tmp, []byte(content), 0o644)
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, name))
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// remove takes a file out of the manifest folder.
func (n *node) remove(name string) {
	n.t.Helper()
	if err := os.Remove(filepath.Join(n.root, "manifests", name)); err != nil {
		n.t.Fatal(err)
	}
}

// report returns the node's own report.
func (n *node) report() control.Report {
	n.t.Helper()
	out, err := n.try("status", "-o", "json")
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		n.t.Fatal(err)
	}
	var r control.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		n.t.Fatalf("status -o json: %v\n%s", err, out)
	}
	return r
}

// running waits until a pod is Ready, and returns it.
func (n *node) running(name string) *v1.Pod {
	n.t.Helper()
	var pod *v1.Pod
	n.eventually(fmt.Sprintf("pod %s is Ready", name), func() error {
		pod = n.pod(name)
		if pod == nil {
			return errors.New("no such pod")
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("status: %+v", pod.Status)
	})
	return pod
}

// eventually waits until check returns nil.
func (n *node) eventually(what string, check func() error) {
	n.t.Helper()
	if err := await(check); err != nil {
		n.t.Fatalf("%s: not within %v: %v", what, patience, err)
	}
}

// containers returns the IDs and restart counts of a pod's containers.
func containers(pod *v1.Pod) string {
	var b strings.Builder
	for _, c := range pod.Status.ContainerStatuses {
		fmt.Fprintf(&b, "%s %s %d\n", c.Name, c.ContainerID, c.RestartCount)
	}
	return b.String()
}

// wants returns nil if out holds every one of these texts.
func wants(out string, texts ...string) error {
	for _, text := range texts {
		if !strings.Contains(out, text) {
			return fmt.Errorf("no %q in:\n%s", text, out)
		}
	}
	return nil
}
