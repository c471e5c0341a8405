package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/holdfast-dev/holdfast/bench/podlife"
	"github.com/holdfast-dev/holdfast/bench/procfs"
)

// life starts a new node and takes pods through their lives on it.
func life(ctx context.Context, o options) (l *podlife.Life, err error) {
	n, err := newNode(o.bin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.remove(ctx)) }()
	client, err := n.startReady(ctx)
	if err != nil {
		return nil, err
	}
	containerd, err := procfs.FindContainerd(n.root)
	if err != nil {
		return nil, err
	}
	l, err = podlife.Measure(ctx, podlife.Node{
		Image: "holdfast.local/demo:latest", Client: client, Agent: n.cmd.Process.Pid, Runtime: containerd,
		Pods: filepath.Join(n.root, "kubelet", "pods"), Single: o.pods, Bursts: o.bursts, Say: say,
	})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, n.log.String())
	}
	return l, nil
}
