package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/leaks"
)

// A podRun is one "holdfast run".
type podRun struct {
	cmd         *exec.Cmd
	out, errOut bytes.Buffer
}

// startRun starts "holdfast run" of a manifest. Nodes of its own are made below
// tmp.
func startRun(t *testing.T, tmp, manifest string, args ...string) *podRun {
	t.Helper()
	testenv.Need(t, "root")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	r := &podRun{cmd: exec.CommandContext(ctx, holdfastBin, append([]string{"run", "-f", "-"}, args...)...)}
	r.cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "HOLDFAST_ROOT_DIR=")
	r.cmd.Stdin = strings.NewReader(manifest)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.errOut
	r.cmd.WaitDelay = 10 * time.Second
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// code waits for the end and returns the exit code.
func (r *podRun) code(t *testing.T) int {
	t.Helper()
	err := r.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// oneContainer is a pod of one container that ends.
func oneContainer(name, rest string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {generateName: %s-}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 3
  containers:
  - {name: app, image: "holdfast.local/demo:latest", %s}
`, name, rest)
}

// runFolder returns a folder for nodes that run one pod. It must be empty when
// the test ends.
func runFolder(t *testing.T) string {
	t.Helper()
	tmp, err := os.MkdirTemp("", "holdfast-e2e-") //nolint:usetesting // what is left in it is the test's result
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, _ := filepath.Glob(filepath.Join(tmp, "*"))
		for _, root := range left {
			t.Errorf("%s is left", root)
			out, _ := exec.CommandContext(context.WithoutCancel(t.Context()), holdfastBin, "uninstall", "--yes", "--root-dir", root).CombinedOutput()
			t.Logf("%s", out)
		}
		if err := os.RemoveAll(tmp); err != nil {
			t.Error(err)
		}
	})
	return tmp
}

// TestRunWithoutNode runs pods on nodes of their own.
func TestRunWithoutNode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		manifest     string
		args         []string
		code         int
		out, errOuts string
	}{
		"it succeeds":       {manifest: oneContainer("ok", `args: [echo, hello]`), code: 0, out: "hello\n"},
		"its exit code":     {manifest: oneContainer("three", `args: [exit, "3"]`), code: 3, errOuts: "container app ended with exit code 3"},
		"too much memory":   {manifest: oneContainer("oom", `args: [burn, memory, 256Mi, 60s], resources: {limits: {memory: 32Mi}}`), code: 137, errOuts: "OOMKilled"},
		"no image":          {manifest: strings.ReplaceAll(oneContainer("img", `args: [echo]`), "holdfast.local/demo:latest", "127.0.0.1:1/none:1"), code: 121, errOuts: "ErrImagePull"},
		"no program":        {manifest: oneContainer("prog", `command: [/none]`), code: 123, errOuts: "no such file"},
		"no ConfigMap":      {manifest: oneContainer("map", `args: [echo], envFrom: [{configMapRef: {name: none}}]`), code: 123, errOuts: "none"},
		"no place":          {manifest: oneContainer("place", `args: [echo], resources: {requests: {cpu: 1000}}`), code: 122, errOuts: "cpu"},
		"an unknown field":  {manifest: oneContainer("field", `argz: [echo]`), code: 120, errOuts: "did you mean"},
		"two Pods":          {manifest: oneContainer("a", `args: [echo]`) + "---\n" + oneContainer("b", `args: [echo]`), code: 120, errOuts: "2 Pods"},
		"its time is over":  {manifest: oneContainer("slow", `args: [sleep, forever]`), args: []string{"--timeout", "4s"}, code: 124, errOuts: "--timeout"},
		"nobody's archive":  {manifest: oneContainer("tar", `args: [echo]`), args: []string{"--image-archive", "/none.tar"}, code: 121, errOuts: "/none.tar"},
		"a wrong flag":      {args: []string{"--nosuch"}, code: 125, errOuts: "nosuch"},
		"left without node": {manifest: oneContainer("leave", `args: [echo]`), args: []string{"--wait=false", "--root-dir", "/nonexistent/node"}, code: 125, errOuts: "no node runs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRun(t, runFolder(t), test.manifest, test.args...)
			if got := r.code(t); got != test.code {
				t.Errorf("got exit code %d, want %d", got, test.code)
			}
			if got := r.out.String(); got != test.out && (test.code == 0 || test.out != "") {
				t.Errorf("got output %q, want %q", got, test.out)
			}
			if err := wants(r.errOut.String(), test.errOuts); err != nil {
				t.Error(err)
			}
		})
	}
}

const severalDocuments = `apiVersion: v1
kind: Pod
metadata: {name: several, namespace: mine}
spec:
  restartPolicy: OnFailure
  volumes: [{name: text, configMap: {name: text}}]
  initContainers:
  - {name: init, image: "holdfast.local/demo:latest", args: [echo, first]}
  containers:
  - {name: app, image: "holdfast.local/demo:latest", args: [cat, /text/lines], volumeMounts: [{name: text, mountPath: /text}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: mine}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: text, namespace: mine}
data:
  lines: |
`

// TestRunWritesEveryLine runs a pod that ends as soon as it has written 1,000
// lines.
func TestRunWritesEveryLine(t *testing.T) {
	t.Parallel()
	manifest, want := severalDocuments, "[init] first\n"
	for i := range 1000 {
		manifest += fmt.Sprintf("    line %d\n", i)
		want += fmt.Sprintf("[app] line %d\n", i)
	}
	r := startRun(t, runFolder(t), manifest)
	if got := r.code(t); got != 0 {
		t.Errorf("got exit code %d\n%s", got, r.errOut.String())
	}
	if got := r.out.String(); got != want {
		t.Errorf("got %d bytes of output, want %d:\n%.2000s", len(got), len(want), got)
	}
}

// TestRunOnNode runs pods on a node that runs, several at once.
func TestRunOnNode(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	root := []string{"--root-dir", n.root}
	before := n.kubectl("get", "pods,configmaps,namespaces", "-A", "-o", "name")

	var all sync.WaitGroup
	for _, code := range []int{0, 3} {
		r := startRun(t, n.root, oneContainer("at-once", fmt.Sprintf(`args: [exit, "%d"]`, code)), root...)
		all.Go(func() {
			if got := r.code(t); got != code {
				t.Errorf("got exit code %d, want %d\n%s", got, code, r.errOut.String())
			}
		})
	}
	all.Wait()

	// What is there already is not touched.
	n.kubectl("create", "configmap", "text", "--from-literal=lines=mine")
	r := startRun(t, n.root, strings.ReplaceAll(severalDocuments, ", namespace: mine", "")+"    theirs\n", root...)
	if got := r.code(t); got != 120 {
		t.Errorf("got exit code %d, want 120\n%s", got, r.errOut.String())
	}
	if err := wants(n.kubectl("get", "configmap", "text", "-o", "yaml"), "lines: mine"); err != nil {
		t.Error(err)
	}
	n.kubectl("delete", "configmap", "text")

	// An image that is in no registry.
	archive := filepath.Join(t.TempDir(), "app.tar")
	if err := os.WriteFile(archive, demoArchive(t, "reg.invalid/run:1"), 0o644); err != nil {
		t.Fatal(err)
	}
	manifest := strings.ReplaceAll(oneContainer("archive", `args: [echo, imported]`), "holdfast.local/demo:latest", "reg.invalid/run:1")
	r = startRun(t, n.root, manifest, append(root, "--image-archive", archive)...)
	if got := r.code(t); got != 0 || r.out.String() != "imported\n" {
		t.Errorf("got exit code %d and %q\n%s", got, r.out.String(), r.errOut.String())
	}

	// Started and left.
	r = startRun(t, n.root, oneContainer("left", `args: [sleep, forever]`), append(root, "--wait=false")...)
	if got := r.code(t); got != 0 {
		t.Errorf("got exit code %d\n%s", got, r.errOut.String())
	}
	if err := wants(r.errOut.String(), "kubectl logs -f", "kubectl delete pod"); err != nil {
		t.Error(err)
	}
	if err := wants(n.kubectl("get", "pods"), "left-"); err != nil {
		t.Error(err)
	}
	n.kubectl("delete", "pods", "--all", "--timeout=3m")
	n.eventually("the namespace is gone", func() error {
		if after := n.kubectl("get", "pods,configmaps,namespaces", "-A", "-o", "name"); after != before {
			return fmt.Errorf("got\n%s\nwant\n%s", after, before)
		}
		return nil
	})
}

// TestRunInterrupted ends the command by signals.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	tmp := runFolder(t)
	r := startRun(t, tmp, oneContainer("endless", `args: [serve]`))
	n := &node{t: t}
	n.eventually("the pod was made", func() error {
		roots, _ := filepath.Glob(filepath.Join(tmp, "*", "logs", "pods", "*", "app"))
		if len(roots) == 0 {
			return errors.New("no log yet")
		}
		return nil
	})
	roots, _ := filepath.Glob(filepath.Join(tmp, "*"))
	in, err := instance.Open(roots[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := r.code(t); got != 130 {
		t.Errorf("got exit code %d, want 130\n%s", got, r.errOut.String())
	}
	n.settles("nothing is left of the node", func() ([]string, error) {
		return leaks.Gone(context.WithoutCancel(t.Context()), leaks.Node{Instance: in, Ctr: ctrBin})
	})
}

// TestRunInterruptedTwice ends a run that would clear up for long, and looks
// whether what it says removes what is left.
func TestRunInterruptedTwice(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	manifest := strings.ReplaceAll(oneContainer("stubborn", `args: [sleep, forever], lifecycle: {preStop: {sleep: {seconds: 60}}}`), "PeriodSeconds: 3", "PeriodSeconds: 70")
	r := startRun(t, n.root, manifest, "--root-dir", n.root)
	n.eventually("the pod runs", func() error { return wants(n.kubectl("get", "pods"), "Running") })
	for i := range 2 {
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			n.eventually("the pod is being stopped", func() error {
				return wants(n.kubectl("get", "pods", "-o", "yaml"), "deletionTimestamp")
			})
		}
	}
	if got := r.code(t); got != 143 {
		t.Errorf("got exit code %d, want 143", got)
	}
	_, hint, found := strings.Cut(r.errOut.String(), "remove what is left with: ")
	if !found {
		t.Fatalf("no hint in %s", r.errOut.String())
	}
	words := strings.Fields(hint)
	out, err := run(t, "", holdfastBin, append(words[1:], "--now")...)
	if err != nil {
		t.Errorf("%s: %v\n%s", hint, err, out)
	}
}

// TestRunKeepsImages runs two pods at once in one folder that is kept.
func TestRunKeepsImages(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	root := filepath.Join(n.root, "kept")
	n.root = root
	archive := filepath.Join(t.TempDir(), "app.tar")
	if err := os.WriteFile(archive, demoArchive(t, "reg.invalid/kept:1"), 0o644); err != nil {
		t.Fatal(err)
	}
	manifest := strings.ReplaceAll(oneContainer("kept", `args: [echo, here]`), "holdfast.local/demo:latest", "reg.invalid/kept:1")
	first := startRun(t, root, manifest, "--root-dir", root, "--image-archive", archive)
	if got := first.code(t); got != 0 || first.out.String() != "here\n" {
		t.Fatalf("got exit code %d and %q\n%s", got, first.out.String(), first.errOut.String())
	}
	second := startRun(t, root, manifest, "--root-dir", root)
	third := startRun(t, root, manifest, "--root-dir", root)
	for _, r := range []*podRun{second, third} {
		if got := r.code(t); got != 0 || r.out.String() != "here\n" {
			t.Errorf("got exit code %d and %q\n%s", got, r.out.String(), r.errOut.String())
		}
	}
}
