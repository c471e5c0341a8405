package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// report holds every number of a run.
type report struct {
	Date       time.Time `json:"date"`
	Version    string    `json:"version"`
	Machine    machine   `json:"machine"`
	BinarySize int64     `json:"binarySize"` // bytes
	VersionRSS int64     `json:"versionRSS"` // bytes
	Cold       starts    `json:"cold"`
	Warm       starts    `json:"warm"`
	Idle       []idle    `json:"idle"`
	PodStart   series    `json:"podStart"`
	PodDelete  series    `json:"podDelete"`
	AfterPods  usage     `json:"afterPods"` // the node, once the pods are gone
}

// starts are the times of several starts, each from the process's start.
type starts struct {
	API   series `json:"api"`
	Ready series `json:"ready"`
	Pod   series `json:"pod"` // first pod Ready
}

// idle is what a node with some pods costs when nothing happens.
type idle struct {
	Pods       int           `json:"pods"`
	Over       time.Duration `json:"over"`
	Node       usage         `json:"node"` // CPU: used in that time
	Containerd usage         `json:"containerd"`
}

// podYAML is a pod that serves until it is told to stop.
func podYAML(name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  containers:
    - name: main
      image: holdfast.local/demo:latest
      imagePullPolicy: IfNotPresent
      args: [serve]
`, name)
}

func measure(ctx context.Context, o options) (*report, error) {
	r := &report{Date: time.Now()}
	var err error
	if r.Machine, err = readMachine(runtime.NumCPU()); err != nil {
		return nil, err
	}
	info, err := os.Stat(o.bin)
	if err != nil {
		return nil, err
	}
	r.BinarySize = info.Size()
	version, err := exec.CommandContext(ctx, o.bin, "version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s version: %w", o.bin, err)
	}
	if fields := strings.Fields(string(version)); len(fields) > 1 {
		r.Version = fields[1]
	}
	if r.VersionRSS, err = peakRSS(ctx, o.bin); err != nil {
		return nil, err
	}
	for i := range o.starts {
		say("cold start %d of %d", i+1, o.starts)
		if err := r.coldStart(ctx, o.bin); err != nil {
			return nil, err
		}
	}
	return r, r.longRun(ctx, o)
}

// coldStart measures the first start of a new node with one manifest.
func (r *report) coldStart(ctx context.Context, bin string) (err error) {
	n, err := newNode(bin)
	if err != nil {
		return err
	}
	if err := n.write("first.yaml", podYAML("first")); err != nil {
		return err
	}
	if err := r.Cold.measure(ctx, n); err != nil {
		return errors.Join(err, n.remove(ctx))
	}
	return n.remove(ctx)
}

// measure starts a node that has one pod.
func (s *starts) measure(ctx context.Context, n *node) error {
	began, err := n.start(ctx)
	if err != nil {
		return err
	}
	api, err := n.await(ctx, began, "the API answers", n.apiAnswers)
	if err != nil {
		return err
	}
	ready, err := n.await(ctx, began, "the node is ready", n.saysReady)
	if err != nil {
		return err
	}
	pod, err := n.await(ctx, began, "the first pod runs", n.podsRun(1))
	if err != nil {
		return err
	}
	s.API, s.Ready, s.Pod = append(s.API, api), append(s.Ready, ready), append(s.Pod, pod)
	return nil
}

// longRun measures one node: idle with more and more pods, pods through the
// API, and its restarts.
func (r *report) longRun(ctx context.Context, o options) (err error) {
	n, err := newNode(o.bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.remove(ctx)) }()
	began, err := n.start(ctx)
	if err != nil {
		return err
	}
	if _, err := n.await(ctx, began, "the node is ready", n.saysReady); err != nil {
		return err
	}
	for _, pods := range []int{0, 1, 10} {
		if err := r.idle(ctx, o, n, pods); err != nil {
			return err
		}
	}
	for i := 1; i < 10; i++ { // one stays, for the restarts
		if err := os.Remove(n.manifest(podFile(i))); err != nil {
			return err
		}
	}
	if _, err := n.await(ctx, began, "nine pods are gone", n.podsRun(1)); err != nil {
		return err
	}
	if err := r.pods(ctx, o, n); err != nil {
		return err
	}
	for i := range o.starts {
		say("restart %d of %d", i+1, o.starts)
		if err := n.stop(); err != nil {
			return err
		}
		if err := r.Warm.measure(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func podFile(i int) string { return fmt.Sprintf("idle-%d.yaml", i) }

// idle brings the node to a number of pods and then leaves it alone.
func (r *report) idle(ctx context.Context, o options, n *node, pods int) error {
	for i := range pods {
		if err := n.write(podFile(i), podYAML(fmt.Sprintf("idle-%d", i))); err != nil {
			return err
		}
	}
	if _, err := n.await(ctx, time.Now(), fmt.Sprintf("%d pods run", pods), n.podsRun(pods)); err != nil {
		return err
	}
	say("idle with %d pods", pods)
	if err := pause(ctx, o.settle); err != nil {
		return err
	}
	containerd, err := findContainerd(n.root)
	if err != nil {
		return err
	}
	pids := []int{n.cmd.Process.Pid, containerd}
	var used [2]usage
	for i, pid := range pids {
		if used[i], err = readUsage(pid); err != nil {
			return err
		}
	}
	if err := pause(ctx, o.idle); err != nil {
		return err
	}
	for i, pid := range pids {
		now, err := readUsage(pid)
		if err != nil {
			return err
		}
		now.CPU -= used[i].CPU
		used[i] = now
	}
	r.Idle = append(r.Idle, idle{Pods: pods, Over: o.idle, Node: used[0], Containerd: used[1]})
	return nil
}

// pause waits; the node is not to be disturbed.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
