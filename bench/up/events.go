package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/bench/podlife"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
)

// deaths are how long it took until the API's watch said that a container had
// ended.
type deaths struct {
	killed podlife.Series // since its process was killed
	told   podlife.Series // since the runtime's event came
}

// events starts a new node and kills a container of it again and again.
func events(ctx context.Context, o options) (d *deaths, err error) {
	n, err := newNode(o.bin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.remove(ctx)) }()
	client, err := n.startReady(ctx)
	if err != nil {
		return nil, err
	}
	in, err := instance.Open(n.root)
	if err != nil {
		return nil, err
	}
	conn, err := cri.Dial(in.Run("containerd.sock"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := runtimeapi.NewRuntimeServiceClient(conn).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return nil, err
	}
	stops := make(chan stop, 1000)
	go watchStops(stream, stops) // ends with ctx
	d = &deaths{}
	for i := range warmUp + o.pods {
		say("container %d of %d", i+1, warmUp+o.pods)
		killed, told, err := oneDeath(ctx, client, fmt.Sprintf("dies-%d", i), stops)
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, n.log.String())
		}
		if i >= warmUp {
			d.killed, d.told = append(d.killed, killed), append(d.told, told)
		}
	}
	return d, nil
}

// A stop is the runtime's event that a container of a pod has ended.
type stop struct {
	pod  string // its UID
	time time.Time
}

func watchStops(stream runtimeapi.RuntimeService_GetContainerEventsClient, to chan<- stop) {
	for {
		e, err := stream.Recv()
		if err != nil {
			return // whoever waits for an event runs out of patience
		}
		if e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
			to <- stop{e.GetPodSandboxStatus().GetMetadata().GetUid(), time.Now()}
		}
	}
}

// oneDeath measures up to the watch event that says that a container has ended:
// from the signal that ends its process, and from the runtime's event.
func oneDeath(ctx context.Context, client kubernetes.Interface, name string, stops <-chan stop) (killed, told time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var pod v1.Pod
	if err := yaml.UnmarshalStrict([]byte(podYAML(name)), &pod); err != nil {
		return 0, 0, err
	}
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	watched, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return 0, 0, err
	}
	defer watched.Stop()
	made, err := pods.Create(ctx, &pod, metav1.CreateOptions{})
	if err != nil {
		return 0, 0, err
	}
	if err := await(ctx, watched, isReady); err != nil {
		return 0, 0, fmt.Errorf("wait until pod %s is Ready: %w", name, err)
	}
	pid, err := processOf(made.UID)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, 0, fmt.Errorf("kill process %d of pod %s: %w", pid, name, err)
	}
	if err := await(ctx, watched, hasEnded); err != nil {
		return 0, 0, fmt.Errorf("wait until the container of pod %s has ended: %w", name, err)
	}
	ended := time.Now()
	for {
		select {
		case s := <-stops:
			if s.pod == string(made.UID) {
				return ended.Sub(began), ended.Sub(s.time), pods.Delete(ctx, name, metav1.DeleteOptions{})
			}
		case <-ctx.Done():
			return 0, 0, fmt.Errorf("wait for the runtime's event of pod %s: %w", name, ctx.Err())
		}
	}
}

func hasEnded(e watch.Event) bool {
	pod, ok := e.Object.(*v1.Pod)
	return ok && len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Terminated != nil
}

// processOf finds the process of a pod's one container: in the pod's cgroup, and
// not that of its sandbox.
func processOf(uid types.UID) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		groups, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(groups), string(uid)) {
			continue // it has ended meanwhile, or is somebody else's
		}
		dir := filepath.Dir(file)
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !strings.Contains(string(command), "serve") {
			continue
		}
		return strconv.Atoi(filepath.Base(dir))
	}
	return 0, fmt.Errorf("pod %s has no process", uid)
}

// table is the report for people.
func (d *deaths) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| until the API's watch says that a container has ended, milliseconds (%d containers) | p50 | p90 | min | max |\n|---|---|---|---|---|\n", len(d.told))
	for _, row := range []struct {
		what string
		s    podlife.Series
	}{{"from the event of the runtime", d.told}, {"from the signal that kills its process", d.killed}} {
		ms := func(q float64) string {
			return fmt.Sprintf("%.0f", float64(row.s.Quantile(q))/float64(time.Millisecond))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.what, ms(0.5), ms(0.9), ms(0), ms(1))
	}
	return b.String()
}
