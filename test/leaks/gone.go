package leaks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

// Gone returns, one line each, what is still there of a node that was
// uninstalled. What the user put into its folder is not looked for.
func Gone(ctx context.Context, n Node) ([]string, error) {
	in := n.Instance
	l := &look{node: n}
	points, err := mountPoints()
	l.errs = append(l.errs, err)
	for _, point := range points {
		if l.below(point) {
			l.leak("mount %s", point)
		}
	}
	for pid, words := range commands() {
		if slices.ContainsFunc(words, func(w string) bool { return w == in.Root || l.below(w) }) {
			l.leak("process %d: %s", pid, strings.Join(words, " "))
		}
	}
	paths := append(cgroupRoots(in), in.Run(), filepath.Join(string(instance.DefaultRegister), in.ID), in.Kubeconfig())
	for _, name := range []string{"containerd", "etcd", "instance.json", "kubelet", "logs", "pki", "state", "up.lock"} {
		paths = append(paths, in.Path(name))
	}
	results, _ := filepath.Glob("/var/lib/cni/results/holdfast-" + in.ID + "-*")
	for _, path := range append(paths, results...) {
		if _, err := os.Lstat(path); err == nil {
			l.leak("%s", path)
		}
	}
	for _, name := range []string{"holdfast-" + in.ID, "HOLDFAST-" + in.ID, in.Bridge()} {
		for _, rule := range l.rules(ctx, name) {
			l.leak("firewall: %s", rule)
		}
	}
	links, err := l.run(ctx, "ip", "-o", "link")
	l.errs = append(l.errs, err)
	for line := range strings.Lines(links) {
		if strings.Contains(line, in.Bridge()+":") || strings.Contains(line, "master "+in.Bridge()+" ") {
			l.leak("link %s", strings.TrimSpace(line))
		}
	}
	slices.Sort(l.found)
	if err := errors.Join(l.errs...); err != nil {
		return nil, fmt.Errorf("look for what is left: %w", err)
	}
	return slices.Compact(l.found), nil
}
