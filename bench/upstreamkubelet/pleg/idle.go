package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	uppleg "k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pleg"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

// sides are who is watched while nothing happens.
var sides = []struct {
	name  string
	start func(ctx context.Context, socket string) (stop func() error, err error)
}{
	{"nobody: the runtime alone", func(context.Context, string) (func() error, error) { return func() error { return nil }, nil }},
	{"upstream, generic", func(ctx context.Context, socket string) (func() error, error) {
		return startUpstream(ctx, socket, false)
	}},
	{"upstream, evented", func(ctx context.Context, socket string) (func() error, error) {
		return startUpstream(ctx, socket, true)
	}},
	{"Holdfast", startOurs},
}

// idling is a process a side.
type idling struct {
	commands []*exec.Cmd
	answers  []*bytes.Buffer
	idle     time.Duration
}

// startIdle starts all sides, and waits until they have been watched: nothing
// else is to run meanwhile.
func startIdle(ctx context.Context, o options) (*idling, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "idle for %v\n", o.settle+o.idle)
	i := &idling{idle: o.idle}
	for _, side := range sides {
		cmd := exec.CommandContext(ctx, self, "-idle-side", side.name, "-settle", o.settle.String(), "-idle", o.idle.String())
		answer := &bytes.Buffer{}
		cmd.Stdout, cmd.Stderr = answer, os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		i.commands, i.answers = append(i.commands, cmd), append(i.answers, answer)
	}
	var errs []error
	for _, cmd := range i.commands {
		errs = append(errs, cmd.Wait())
	}
	return i, errors.Join(errs...)
}

// table writes the table of idle costs.
func (i *idling) table(to *strings.Builder) error {
	fmt.Fprintf(to, "| nothing happens, %d pods of %d containers, both ends of the socket | CPU a minute | beside upstream's |\n|---|---|---|\n", idlePods, perPod)
	var upstream float64
	for n, side := range sides {
		used, err := strconv.ParseFloat(strings.TrimSpace(i.answers[n].String()), 64)
		if err != nil {
			return fmt.Errorf("idle, %s: %w", side.name, err)
		}
		if upstream == 0 && strings.HasPrefix(side.name, "upstream") {
			upstream = used
		}
		ratio := "–"
		if upstream > 0 {
			ratio = fmt.Sprintf("1/%.0f", upstream/used)
		}
		fmt.Fprintf(to, "| %s | %.1f ms | %s |\n", side.name, used, ratio)
	}
	to.WriteString("\n")
	return nil
}

// idleSide runs one side with the runtime in this process, and prints how many
// milliseconds of CPU time a minute of both takes.
func idleSide(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "hf-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "cri.sock")
	stopRuntime, err := newSocketRuntime().listen(ctx, socket)
	if err != nil {
		return err
	}
	defer stopRuntime()
	for _, side := range sides {
		if side.name != o.side {
			continue
		}
		stop, err := side.start(ctx, socket)
		if err != nil {
			return err
		}
		if err := wait(ctx, o.settle); err != nil {
			return errors.Join(err, stop())
		}
		before := cpuTime()
		if err := wait(ctx, o.idle); err != nil {
			return errors.Join(err, stop())
		}
		used := cpuTime() - before
		_, err = fmt.Fprintf(os.Stdout, "%.3f\n", float64(used)/1e6/o.idle.Minutes())
		return errors.Join(err, stop())
	}
	return fmt.Errorf("no side %q", o.side)
}

// cpuTime is what this process has used until now.
func cpuTime() time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		panic(err) // the arguments are right
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func startOurs(ctx context.Context, socket string) (func() error, error) {
	conn, err := cri.Dial(socket)
	if err != nil {
		return nil, err
	}
	generator := pleg.New(pleg.Config{Runtime: cri.New(conn, cri.Config{}), Cache: observed.NewCache()})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- generator.Run(ctx) }()
	for range idlePods {
		<-generator.Events()
	}
	return func() error { cancel(); return errors.Join(<-ended, conn.Close()) }, nil
}

// startUpstream starts upstream's generator. What it asks for is as cheap as it
// can be: upstream's own runtime manager does more with each answer.
func startUpstream(ctx context.Context, socket string, evented bool) (func() error, error) {
	service, err := remote.NewRemoteRuntimeServiceBuilder().WithEndpoint("unix://" + socket).WithConnectionTimeout(time.Minute).Build(ctx)
	if err != nil {
		return nil, err
	}
	events := make(chan *uppleg.PodLifecycleEvent, eventRoom)
	generator := uppleg.NewGenericPLEG(lister{service: service}, events,
		&uppleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute}, kubecontainer.NewCache(), clock.RealClock{})
	ctx, cancel := context.WithCancel(ctx)
	generator.Start(ctx)
	if evented {
		uppleg.NewEventedPLEG(service, generator, 5).Start(ctx)
	}
	seen := map[types.UID]bool{}
	for len(seen) < idlePods {
		select {
		case e := <-events:
			seen[e.ID] = true
		case <-time.After(30 * time.Second):
			cancel()
			return nil, fmt.Errorf("upstream told of %d of %d pods", len(seen), idlePods)
		}
	}
	return func() error { cancel(); return nil }, nil
}

// A lister asks the runtime as the upstream kubelet's runtime manager does.
type lister struct {
	kubecontainer.Runtime // the methods that nobody calls here
	service               internalapi.RuntimeService
}

// GetPods is of the runtime that the generator asks.
func (l lister) GetPods(ctx context.Context, _ bool) ([]*kubecontainer.Pod, error) {
	sandboxes, err := l.service.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{})
	if err != nil {
		return nil, err
	}
	containers, err := l.service.ListContainers(ctx, &runtimeapi.ContainerFilter{})
	if err != nil {
		return nil, err
	}
	pods, now := map[string]*kubecontainer.Pod{}, time.Now()
	all := make([]*kubecontainer.Pod, 0, len(sandboxes))
	for _, s := range sandboxes {
		pod := &kubecontainer.Pod{
			ID: types.UID(s.GetMetadata().GetUid()), Name: s.GetMetadata().GetName(), Namespace: s.GetMetadata().GetNamespace(), Timestamp: now,
			Sandboxes: []*kubecontainer.Container{{
				ID: kubecontainer.ContainerID{Type: "bench", ID: s.GetId()}, State: kubecontainer.ContainerStateRunning,
			}},
		}
		pods[s.GetMetadata().GetUid()] = pod
		all = append(all, pod)
	}
	for _, c := range containers {
		pod := pods[c.GetLabels()[runtimelabels.PodUID]]
		if pod == nil {
			continue
		}
		pod.Containers = append(pod.Containers, &kubecontainer.Container{
			ID: kubecontainer.ContainerID{Type: "bench", ID: c.GetId()}, Name: c.GetLabels()[runtimelabels.ContainerName],
			ImageID: c.GetImageRef(), Image: c.GetImage().GetImage(), State: kubecontainer.ContainerStateRunning,
		})
	}
	return all, nil
}

// GetPodStatus is of the runtime that the generator asks.
func (l lister) GetPodStatus(ctx context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	status := &kubecontainer.PodStatus{ID: pod.ID, Name: pod.Name, Namespace: pod.Namespace, TimeStamp: pod.Timestamp}
	for _, s := range pod.Sandboxes {
		got, err := l.service.PodSandboxStatus(ctx, s.ID.ID, false)
		if err != nil {
			return nil, err
		}
		status.SandboxStatuses = append(status.SandboxStatuses, got.GetStatus())
	}
	for _, c := range pod.Containers {
		got, err := l.service.ContainerStatus(ctx, c.ID.ID, false)
		if err != nil {
			return nil, err
		}
		status.ContainerStatuses = append(status.ContainerStatuses, &kubecontainer.Status{
			ID: c.ID, Name: c.Name, State: kubecontainer.ContainerStateRunning, CreatedAt: time.Unix(0, got.GetStatus().GetCreatedAt()),
		})
	}
	return status, nil
}
