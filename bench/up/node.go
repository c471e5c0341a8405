package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
)

const (
	// patience bounds every wait; it is far above anything measured.
	patience = 2 * time.Minute
	// glance is how often something is looked at that cannot be watched.
	glance = 5 * time.Millisecond
	name   = "bench"
)

// node is one instance under measurement.
type node struct {
	bin  string
	root string
	cmd  *exec.Cmd // nil: does not run
	log  bytes.Buffer
}

// newNode makes the folder of a node that does not run yet.
func newNode(bin string) (*node, error) {
	root, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return nil, err
	}
	n := &node{bin: bin, root: root}
	return n, os.MkdirAll(n.manifest(""), 0o755)
}

// manifest is the path of a file in the manifest folder.
func (n *node) manifest(file string) string { return filepath.Join(n.root, "manifests", file) }

// write puts a manifest into the folder as an editor does.
func (n *node) write(file, text string) error {
	tmp := n.manifest("." + file)
	return errors.Join(os.WriteFile(tmp, []byte(text), 0o644), os.Rename(tmp, n.manifest(file)))
}

// start starts the node's process, and returns when that was.
func (n *node) start(ctx context.Context) (time.Time, error) {
	n.log.Reset()
	// The node must outlive a cancelled run, so that it can be removed.
	n.cmd = exec.CommandContext(context.WithoutCancel(ctx), n.bin, "--root-dir", n.root, "up",
		"--node-name", name, "--api-port", "0", "--kubelet-port", "0")
	n.cmd.Stdout, n.cmd.Stderr = &n.log, &n.log
	began := time.Now()
	return began, n.cmd.Start()
}

// startReady starts the node, waits until it is ready, and returns a client of
// its API.
func (n *node) startReady(ctx context.Context) (*kubernetes.Clientset, error) {
	began, err := n.start(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := n.await(ctx, began, "the node is ready", n.saysReady); err != nil {
		return nil, err
	}
	return n.client()
}

// stop ends the process and leaves the pods alone.
func (n *node) stop() error {
	if n.cmd == nil {
		return nil
	}
	err := n.cmd.Process.Signal(syscall.SIGTERM)
	if err == nil {
		err = n.cmd.Wait()
	}
	n.cmd = nil
	if err != nil {
		return fmt.Errorf("the node ended badly: %w\n%s", err, n.log.String())
	}
	return nil
}

// remove uninstalls the node and deletes its folder.
func (n *node) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, n.bin, "--root-dir", n.root, "uninstall", "--yes").CombinedOutput()
	if err != nil {
		return fmt.Errorf("uninstall %s: %w\n%s", n.root, err, out)
	}
	if n.cmd != nil { // uninstall has ended it
		if err := n.cmd.Wait(); err != nil {
			return fmt.Errorf("the node ended badly: %w\n%s", err, n.log.String())
		}
		n.cmd = nil
	}
	return os.RemoveAll(n.root)
}

// client returns a client of the administrator, once the node has written the
// kubeconfig.
func (n *node) client() (*kubernetes.Clientset, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(n.root, "admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1 // measure the node, not the client's own patience
	return kubernetes.NewForConfig(cfg)
}

// apiAnswers reports whether the API says that it is ready.
func (n *node) apiAnswers(ctx context.Context) bool {
	client, err := n.client()
	if err != nil {
		return false
	}
	var status int
	client.RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
	return status == http.StatusOK
}

// apiHasNoPods reports whether the API holds no pod: a mirror goes when its pod
// has ended.
func (n *node) apiHasNoPods(ctx context.Context) bool {
	client, err := n.client()
	if err != nil {
		return false
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	return err == nil && len(pods.Items) == 0
}

// saysReady reports whether the node says that it is ready for pods.
func (n *node) saysReady(ctx context.Context) bool {
	r, err := n.report(ctx)
	return err == nil && r.Ready
}

func (n *node) report(ctx context.Context) (*control.Report, error) {
	in, err := instance.Open(n.root)
	if err != nil {
		return nil, err
	}
	return control.NewClient(in.ControlSocket()).Report(ctx)
}

// await waits until check is true and returns how long after began that was.
func (n *node) await(ctx context.Context, began time.Time, what string, check func(context.Context) bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for {
		if check(ctx) {
			return time.Since(began), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("wait until %s: %w\n%s", what, ctx.Err(), n.log.String())
		}
	}
}

// podsRun reports whether count pods run, by the node's own report.
func (n *node) podsRun(count int) func(context.Context) bool {
	return func(ctx context.Context) bool {
		r, err := n.report(ctx)
		if err != nil || len(r.Pods) != count {
			return false
		}
		for _, p := range r.Pods {
			if p.Ready != p.Total {
				return false
			}
		}
		return true
	}
}
