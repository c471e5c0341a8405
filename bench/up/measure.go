package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/bench/podlife"
	"github.com/holdfast-dev/holdfast/bench/procfs"
)

// report holds every number of a run.
type report struct {
	Date       time.Time      `json:"date"`
	Version    string         `json:"version"`
	Machine    procfs.Machine `json:"machine"`
	BinarySize int64          `json:"binarySize"` // bytes
	VersionRSS int64          `json:"versionRSS"` // bytes
	Cold       starts         `json:"cold"`
	Warm       starts         `json:"warm"`
	WarmMany   starts         `json:"warmMany"` // with manyPods
	Burst      podlife.Series `json:"burst"`    // manyPods manifests appear at once → all Ready
	Build      *builds        `json:"build,omitempty"`
	Idle       []idle         `json:"idle"`
	PodStart   podlife.Series `json:"podStart"`
	PodDelete  podlife.Series `json:"podDelete"`
	AfterPods  procfs.Usage   `json:"afterPods"` // the node, once the pods are gone
}

// starts are the times of several starts, each from the process's start.
type starts struct {
	API   podlife.Series `json:"api"`
	Ready podlife.Series `json:"ready"`
	Pod   podlife.Series `json:"pod"` // first pod Ready
}

// idle is what a node with some pods costs when nothing happens.
type idle struct {
	Pods       int           `json:"pods"`
	Over       time.Duration `json:"over"`
	Node       procfs.Usage  `json:"node"` // CPU and Written: in that time
	Containerd procfs.Usage  `json:"containerd"`
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
	if r.Machine, err = procfs.ReadMachine(runtime.NumCPU()); err != nil {
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
	if r.VersionRSS, err = procfs.PeakRSS(ctx, o.bin); err != nil {
		return nil, err
	}
	for i := range o.starts {
		say("cold start %d of %d", i+1, o.starts)
		if err := r.coldStart(ctx, o.bin); err != nil {
			return nil, err
		}
	}
	if err := r.longRun(ctx, o); err != nil {
		return nil, err
	}
	if o.build {
		r.Build, err = measureBuilds(ctx)
	}
	return r, err
}

// coldStart measures the first start of a new node with one manifest.
func (r *report) coldStart(ctx context.Context, bin string) (err error) {
	n, err := newNode(bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.remove(ctx)) }()
	if err := n.write("first.yaml", podYAML("first")); err != nil {
		return err
	}
	return r.Cold.measure(ctx, n, 1)
}

// measure starts a node that has a number of pods.
func (s *starts) measure(ctx context.Context, n *node, pods int) error {
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
	pod, err := n.await(ctx, began, fmt.Sprintf("%d pods run", pods), n.podsRun(pods))
	if err != nil {
		return err
	}
	s.API, s.Ready, s.Pod = append(s.API, api), append(s.Ready, ready), append(s.Pod, pod)
	return nil
}

// restart measures o.starts starts of a node whose pods run.
func (s *starts) restart(ctx context.Context, o options, n *node, pods int) error {
	for i := range o.starts {
		say("restart %d of %d, with %d pods", i+1, o.starts, pods)
		if err := n.stop(); err != nil {
			return err
		}
		if err := s.measure(ctx, n, pods); err != nil {
			return err
		}
	}
	return nil
}

// manyPods is the crowd of a busy node, fullNode the most that one may have.
const (
	manyPods = 50
	fullNode = 110
)

// longRun measures one node: idle with more and more pods, many pods at once,
// pods through the API, and its restarts.
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
	if _, err := n.setPods(ctx, 1); err != nil {
		return err
	}
	if err := r.pods(ctx, o, n); err != nil {
		return err
	}
	if err := r.Warm.restart(ctx, o, n, 1); err != nil {
		return err
	}
	for i := range o.bursts {
		say("%d pods at once, %d of %d", manyPods, i+1, o.bursts)
		if _, err := n.setPods(ctx, 0); err != nil {
			return err
		}
		// The report counts what is wanted. A pod that is wanted again while
		// it ends would count as ready.
		if _, err := n.await(ctx, began, "the last pod has ended", n.apiHasNoPods); err != nil {
			return err
		}
		took, err := n.setPods(ctx, manyPods)
		if err != nil {
			return err
		}
		r.Burst = append(r.Burst, took)
	}
	if err := r.idle(ctx, o, n, manyPods); err != nil {
		return err
	}
	if err := r.WarmMany.restart(ctx, o, n, manyPods); err != nil {
		return err
	}
	return r.idle(ctx, o, n, fullNode)
}

func podFile(i int) string { return fmt.Sprintf("idle-%d.yaml", i) }

// setPods makes the manifest folder hold so many pods and waits until just
// those run. It returns how long that took.
func (n *node) setPods(ctx context.Context, pods int) (time.Duration, error) {
	began := time.Now()
	for i := range pods {
		file := podFile(i)
		if _, err := os.Stat(n.manifest(file)); err == nil {
			continue
		}
		if err := n.write(file, podYAML(fmt.Sprintf("idle-%d", i))); err != nil {
			return 0, err
		}
	}
	for i := pods; ; i++ {
		err := os.Remove(n.manifest(podFile(i)))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	return n.await(ctx, began, fmt.Sprintf("%d pods run", pods), n.podsRun(pods))
}

// idle brings the node to a number of pods and then leaves it alone.
func (r *report) idle(ctx context.Context, o options, n *node, pods int) error {
	if _, err := n.setPods(ctx, pods); err != nil {
		return err
	}
	say("idle with %d pods", pods)
	if err := pause(ctx, o.settle); err != nil {
		return err
	}
	containerd, err := procfs.FindContainerd(n.root)
	if err != nil {
		return err
	}
	pids := []int{n.cmd.Process.Pid, containerd}
	var used [2]procfs.Usage
	for i, pid := range pids {
		if used[i], err = procfs.ReadUsage(pid); err != nil {
			return err
		}
	}
	if err := pause(ctx, o.idle); err != nil {
		return err
	}
	for i, pid := range pids {
		now, err := procfs.ReadUsage(pid)
		if err != nil {
			return err
		}
		now.CPU -= used[i].CPU
		now.Written -= used[i].Written
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
