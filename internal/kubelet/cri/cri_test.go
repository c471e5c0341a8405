package cri_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

const image = "holdfast.local/demo:latest"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg cri.Config) (*crifake.Fake, *cri.Runtime) {
	t.Helper()
	fake := crifake.Start(t)
	fake.AddImage(image)
	return fake, cri.New(fake.Conn(), cfg)
}

// runPod starts a pod with one running container called main.
func runPod(t *testing.T, r *cri.Runtime, uid string, edits ...func(*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig)) (sandbox, container string) {
	t.Helper()
	labels := map[string]string{runtimelabels.PodUID: uid, runtimelabels.PodName: uid, runtimelabels.PodNamespace: "ns"}
	box := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "ns", Uid: uid},
		Labels:   labels,
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: "main"},
		Image:       &runtimeapi.ImageSpec{Image: image},
		Labels:      labels,
		Annotations: map[string]string{},
	}
	for _, edit := range edits {
		edit(box, config)
	}
	sandbox, err := r.RunSandbox(t.Context(), box, "")
	if err != nil {
		t.Fatal(err)
	}
	container, err = r.CreateContainer(t.Context(), sandbox, config, box)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), container); err != nil {
		t.Fatal(err)
	}
	return sandbox, container
}

func TestErrors(t *testing.T) {
	fake, r := start(t, cri.Config{})
	for _, test := range []struct {
		name string
		err  error
		want error // nil: none of ours
		text string
	}{
		{"not found", status.Error(codes.NotFound, "no such thing"), observed.ErrNotFound, `start container "c": no such thing`},
		{"unavailable", status.Error(codes.Unavailable, "socket closed"), observed.ErrUnavailable, `start container "c": socket closed`},
		{"deadline", status.Error(codes.DeadlineExceeded, "too late"), context.DeadlineExceeded, `start container "c": too late`},
		{"canceled", status.Error(codes.Canceled, "not wanted"), context.Canceled, `start container "c": not wanted`},
		{"unknown", errors.New("runc: no such program"), nil, `start container "c": runc: no such program`},
		{"no words", status.Error(codes.Internal, ""), nil, `start container "c": Internal`},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer fake.Inject(crifake.Fault{Op: "StartContainer", Err: test.err})()
			err := r.StartContainer(t.Context(), "c")
			if err == nil || err.Error() != test.text {
				t.Errorf("got %v, want %s", err, test.text)
			}
			for _, ours := range []error{observed.ErrNotFound, observed.ErrUnavailable, context.DeadlineExceeded, context.Canceled} {
				if got := errors.Is(err, ours); got != errors.Is(test.want, ours) {
					t.Errorf("is %q = %v", ours, got)
				}
			}
		})
	}
}

// TestDeadlines has every operation hang: each call ends by its own deadline.
func TestDeadlines(t *testing.T) {
	fake, r := start(t, cri.Config{Timeout: 10 * time.Millisecond, ImageTimeout: 10 * time.Millisecond})
	calls := map[string]func(context.Context) error{
		"Version":        func(ctx context.Context) error { _, err := r.Version(ctx); return err },
		"Status":         func(ctx context.Context) error { _, err := r.Status(ctx); return err },
		"ListPodSandbox": func(ctx context.Context) error { _, err := r.Inspect(ctx, "a"); return err },
		"ListContainers": func(ctx context.Context) error { _, err := r.Pods(ctx); return err },
		"RunPodSandbox": func(ctx context.Context) error {
			_, err := r.RunSandbox(ctx, &runtimeapi.PodSandboxConfig{}, "")
			return err
		},
		"StopPodSandbox":   func(ctx context.Context) error { return r.StopSandbox(ctx, "a") },
		"RemovePodSandbox": func(ctx context.Context) error { return r.RemoveSandbox(ctx, "a") },
		"CreateContainer": func(ctx context.Context) error {
			_, err := r.CreateContainer(ctx, "a", &runtimeapi.ContainerConfig{}, nil)
			return err
		},
		"StartContainer":     func(ctx context.Context) error { return r.StartContainer(ctx, "a") },
		"StopContainer":      func(ctx context.Context) error { return r.StopContainer(ctx, "a", 0) },
		"RemoveContainer":    func(ctx context.Context) error { return r.RemoveContainer(ctx, "a") },
		"ReopenContainerLog": func(ctx context.Context) error { return r.ReopenLog(ctx, "a") },
		"ExecSync": func(ctx context.Context) error {
			_, _, _, err := r.ExecSync(ctx, "a", nil, time.Millisecond)
			return err
		},
		"Exec":   func(ctx context.Context) error { _, err := r.Exec(ctx, &runtimeapi.ExecRequest{}); return err },
		"Attach": func(ctx context.Context) error { _, err := r.Attach(ctx, &runtimeapi.AttachRequest{}); return err },
		"PortForward": func(ctx context.Context) error {
			_, err := r.PortForward(ctx, &runtimeapi.PortForwardRequest{})
			return err
		},
		"ImageStatus": func(ctx context.Context) error { _, err := r.Image(ctx, "a"); return err },
		"PullImage":   func(ctx context.Context) error { _, err := r.Pull(ctx, "a", nil, nil); return err },
		"ListImages":  func(ctx context.Context) error { _, err := r.Images(ctx); return err },
		"RemoveImage": func(ctx context.Context) error { return r.RemoveImage(ctx, "a") },
		"ImageFsInfo": func(ctx context.Context) error { _, err := r.ImageFS(ctx); return err },
	}
	for op, call := range calls {
		t.Run(op, func(t *testing.T) {
			defer fake.Inject(crifake.Fault{Op: op, Hang: true})()
			if err := call(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want deadline exceeded", err)
			}
		})
	}
}

func TestGrace(t *testing.T) {
	fake, r := start(t, cri.Config{})
	for grace, want := range map[time.Duration]int64{
		-time.Second:            0,
		0:                       0,
		time.Millisecond:        1, // rounded down it would be killed at once
		time.Second:             1,
		1500 * time.Millisecond: 2,
	} {
		var got int64
		takeBack := fake.Inject(crifake.Fault{Op: "StopContainer", Match: func(req any) bool {
			stop, ok := req.(*runtimeapi.StopContainerRequest)
			if ok {
				got = stop.GetTimeout()
			}
			return false
		}})
		if err := r.StopContainer(t.Context(), "c", grace); err != nil {
			t.Error(err)
		}
		takeBack()
		if got != want {
			t.Errorf("grace %v: asked for %d s, want %d", grace, got, want)
		}
	}
}

// TestStopSettles has the runtime answer a stop before its list knows of the
// end, as containerd may: the stop waits for it, and gives up in its time.
func TestStopSettles(t *testing.T) {
	fake, r := start(t, cri.Config{Timeout: time.Minute})
	sandbox, container := runPod(t, r, "a")
	for _, test := range []struct {
		stop, list string
		call       func(*cri.Runtime, context.Context) error
		end        func() error
	}{
		{
			"StopContainer", "ListContainers",
			func(r *cri.Runtime, ctx context.Context) error { return r.StopContainer(ctx, container, 0) },
			func() error { return fake.Exit(container, 0) },
		},
		{
			"StopPodSandbox", "ListPodSandbox",
			func(r *cri.Runtime, ctx context.Context) error { return r.StopSandbox(ctx, sandbox) },
			func() error { return fake.KillSandbox(sandbox) },
		},
	} {
		t.Run(test.stop, func(t *testing.T) {
			// The answer for what is not there: the stop itself does nothing.
			defer fake.Inject(crifake.Fault{Op: test.stop, Err: status.Error(codes.NotFound, "no such task")})()
			hurried := cri.New(fake.Conn(), cri.Config{Timeout: 20 * time.Millisecond})
			if err := test.call(hurried, t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("stop of what goes on: got %v, want deadline exceeded", err)
			}
			asked := 0
			defer fake.Inject(crifake.Fault{Op: test.list, Match: func(any) bool {
				if asked++; asked == 3 {
					if err := test.end(); err != nil {
						t.Error(err)
					}
				}
				return false
			}})()
			if err := test.call(r, t.Context()); err != nil {
				t.Error(err)
			}
			if asked != 3 {
				t.Errorf("asked %d times, want until the list has the end, 3", asked)
			}
		})
	}
}

func TestPods(t *testing.T) {
	_, r := start(t, cri.Config{})
	boxB, mainB := runPod(t, r, "b")
	boxA, mainA := runPod(t, r, "a")
	runPod(t, r, "foreign", func(box *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
		box.Labels, c.Labels = nil, map[string]string{"app": "theirs"}
	})
	got, err := r.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []observed.Pod{
		{
			UID: "a", Name: "a", Namespace: "ns",
			Sandboxes:  []observed.Sandbox{{ID: boxA, State: observed.Running}},
			Containers: []observed.Container{{ID: mainA, Name: "main", SandboxID: boxA, State: observed.Running}},
		},
		{
			UID: "b", Name: "b", Namespace: "ns",
			Sandboxes:  []observed.Sandbox{{ID: boxB, State: observed.Running}},
			Containers: []observed.Container{{ID: mainB, Name: "main", SandboxID: boxB, State: observed.Running}},
		},
	}
	if diff := cmp.Diff(want, got, cmp.Transformer("times", func(time.Time) string { return "" })); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// TestInspectAsksNarrowly holds that the inspection of one pod asks for no
// other.
func TestInspectAsksNarrowly(t *testing.T) {
	fake, r := start(t, cri.Config{})
	for i := range 20 {
		runPod(t, r, fmt.Sprint("pod", i))
	}
	fake.ForgetCalls()
	if _, err := r.Inspect(t.Context(), "pod7"); err != nil {
		t.Fatal(err)
	}
	want := []string{"ListPodSandbox", "PodSandboxStatus", "ListContainers", "ContainerStatus"}
	if diff := cmp.Diff(want, fake.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestInspectWhileRemoved has things go away between the list and the
// questions about each.
func TestInspectWhileRemoved(t *testing.T) {
	fake, r := start(t, cri.Config{})
	runPod(t, r, "a")
	for _, op := range []string{"PodSandboxStatus", "ContainerStatus"} {
		t.Run(op, func(t *testing.T) {
			defer fake.Inject(crifake.Fault{Op: op, Err: status.Error(codes.NotFound, "gone")})()
			got, err := r.Inspect(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if n := len(got.Sandboxes) + len(got.Containers); n != 1 {
				t.Errorf("%d sandboxes and containers left, want 1", n)
			}
		})
		t.Run(op+" fails", func(t *testing.T) {
			defer fake.Inject(crifake.Fault{Op: op, Err: errors.New("broken")})()
			if got, err := r.Inspect(t.Context(), "a"); err == nil {
				t.Errorf("half a status: %+v", got)
			}
		})
	}
}

func TestWrongRestartCount(t *testing.T) {
	var log strings.Builder
	_, r := start(t, cri.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	runPod(t, r, "a", func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
		c.Metadata.Attempt = 3
		c.Annotations[runtimelabels.RestartCount] = "many"
	})
	got, err := r.Inspect(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if n := got.Container("main").RestartCount; n != 3 {
		t.Errorf("restart count = %d, want the attempt", n)
	}
	if !strings.Contains(log.String(), "not a number") {
		t.Errorf("log = %q", log.String())
	}
}

// TestLargeList lists more than gRPC takes by itself, 4 MiB.
func TestLargeList(t *testing.T) {
	_, r := start(t, cri.Config{})
	const pods = 600
	for i := range pods {
		runPod(t, r, fmt.Sprint("pod", i), func(box *runtimeapi.PodSandboxConfig, _ *runtimeapi.ContainerConfig) {
			box.Annotations = map[string]string{"example.com/large": strings.Repeat("x", 10_000)}
		})
	}
	got, err := r.Pods(t.Context())
	if err != nil || len(got) != pods {
		t.Errorf("%d pods, %v", len(got), err)
	}
}

func TestDial(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	for _, endpoint := range []string{"unix://" + socket, "unix:" + socket, socket} {
		conn, err := cri.Dial(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cri.New(conn, cri.Config{}).Version(t.Context()); !errors.Is(err, observed.ErrUnavailable) {
			t.Errorf("%s: nobody there: %v", endpoint, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, endpoint := range []string{"", "tcp://127.0.0.1:1", "run/x.sock", "npipe://x"} {
		if conn, err := cri.Dial(endpoint); err == nil {
			t.Errorf("%q: %v", endpoint, conn.Target())
		}
	}
	fake := crifake.Start(t)
	fake.Listen(t, socket)
	conn, err := cri.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	if got, err := cri.New(conn, cri.Config{}).Version(t.Context()); err != nil || got.GetRuntimeName() != "crifake" {
		t.Errorf("version = %v, %v", got, err)
	}
}

// TestRestart has the runtime go away and come back: containers are there
// still, and the connection is made anew.
func TestRestart(t *testing.T) {
	fake, r := start(t, cri.Config{})
	_, id := runPod(t, r, "a")
	ended := make(chan error, 1)
	heard := make(chan struct{}, 100)
	go func() {
		ended <- r.Events(t.Context(), func(*runtimeapi.ContainerEventResponse) { heard <- struct{}{} })
	}()
	for range time.Tick(time.Millisecond) {
		fake.Emit(&runtimeapi.ContainerEventResponse{})
		if len(heard) > 0 {
			break
		}
	}
	fake.Stop()
	if err := <-ended; !errors.Is(err, observed.ErrUnavailable) {
		t.Errorf("events ended with %v, want unavailable", err)
	}
	if _, err := r.Pods(t.Context()); !errors.Is(err, observed.ErrUnavailable) {
		t.Errorf("list: %v, want unavailable", err)
	}
	fake.Restart()
	for range time.Tick(time.Millisecond) {
		got, err := r.Inspect(t.Context(), "a")
		if errors.Is(err, observed.ErrUnavailable) {
			continue // until the connection is back
		}
		if err != nil {
			t.Fatal(err)
		}
		if c := got.Container("main"); c.ID != id || c.State != observed.Running {
			t.Errorf("after the restart: %+v", c)
		}
		break
	}
}

func TestPull(t *testing.T) {
	fake, r := start(t, cri.Config{})
	fake.OfferImage("example.com/app:v1")
	ref, err := r.Pull(t.Context(), "example.com/app:v1", &runtimeapi.AuthConfig{Username: "u"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Image(t.Context(), "example.com/app:v1")
	if err != nil || got.GetId() != ref {
		t.Errorf("pulled %q, there is %v, %v", ref, got, err)
	}
	if _, err := r.Pull(t.Context(), "example.com/none:v1", nil, nil); !errors.Is(err, observed.ErrNotFound) {
		t.Errorf("pull of nothing: %v", err)
	}
	if err := r.RemoveImage(t.Context(), ref); err != nil {
		t.Error(err)
	}
	if got, err := r.Image(t.Context(), "example.com/app:v1"); err != nil || got != nil {
		t.Errorf("removed image = %v, %v", got, err)
	}
}

// TestOrder holds that sandboxes and containers come newest first.
func TestOrder(t *testing.T) {
	_, r := start(t, cri.Config{})
	var want []string
	for i := range 3 {
		box, _ := runPod(t, r, "a", func(box *runtimeapi.PodSandboxConfig, _ *runtimeapi.ContainerConfig) {
			box.Metadata.Attempt = uint32(i) //nolint:gosec // small
		})
		want = append(want, box)
		if err := r.StopSandbox(t.Context(), box); err != nil {
			t.Fatal(err)
		}
	}
	slices.Reverse(want)
	status, err := r.Inspect(t.Context(), types.UID("a"))
	if err != nil {
		t.Fatal(err)
	}
	pods, err := r.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var inspected, listed, containers []string
	for _, box := range status.Sandboxes {
		inspected = append(inspected, box.GetId())
	}
	for _, box := range pods[0].Sandboxes {
		listed = append(listed, box.ID)
	}
	for _, c := range status.Containers {
		containers = append(containers, c.SandboxID)
	}
	for what, got := range map[string][]string{"inspected": inspected, "listed": listed, "containers": containers} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// TestOrderAfterStep holds that the newest is the newest although the machine's
// clock was set back before it was made, or far ahead before the one from then.
func TestOrderAfterStep(t *testing.T) {
	for _, step := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			fake, r := start(t, cri.Config{})
			var newest string
			for i := range 3 {
				_, newest = runPod(t, r, "a", func(box *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
					box.Metadata.Attempt, c.Metadata.Attempt = uint32(i), uint32(i) //nolint:gosec // small
				})
				fake.StepClock(step)
			}
			status, err := r.Inspect(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if c := status.Container("main"); c.ID != newest || c.RestartCount != 2 || status.Sandboxes[0].GetMetadata().GetAttempt() != 2 {
				t.Errorf("newest container is %s of sandbox attempt %d, want %s of 2", c.ID, status.Sandboxes[0].GetMetadata().GetAttempt(), newest)
			}
			pods, err := r.Pods(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if c := pods[0].Containers[0]; c.ID != newest || pods[0].Sandboxes[0].Attempt != 2 {
				t.Errorf("listed first: container %s of sandbox attempt %d, want %s of 2", c.ID, pods[0].Sandboxes[0].Attempt, newest)
			}
		})
	}
}
