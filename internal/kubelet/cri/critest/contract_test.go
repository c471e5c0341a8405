package critest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

// demoImage is on every runtime under test: /demo with its commands.
const demoImage = "holdfast.local/contract-demo:v1"

// A subject is a runtime under test.
type subject struct {
	*cri.Runtime
	endpoint     string // its socket
	cgroupParent string
	events       bool   // it has an event stream
	pause        string // the image of its sandboxes; empty: it has none
}

// The containers of the tests. A runtime without processes goes by the name, a
// real one by the arguments.
var programs = map[string][]string{
	"runs":   {"sleep", "1h"},
	"exits0": {"exit", "0"},
	"exits7": {"exit", "7"},
	"says":   {"echo", "first line"},
}

// contract runs every test of the contract.
func contract(t *testing.T, s subject) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, subject)
	}{
		{"version", testVersion},
		{"life of a pod", testLife},
		{"unknown pod", testUnknown},
		{"ending by itself", testEnds},
		{"termination message", testMessage},
		{"restart", testRestart},
		{"names are unique", testNames},
		{"wrong order", testWrongOrder},
		{"commands", testExecSync},
		{"streams", testStreams},
		{"resources", testResources},
		{"network", testNetwork},
		{"log", testLog},
		{"forced removal", testForcedRemoval},
		{"start called off", testStartCalledOff},
		{"client dies in a start", testClientDies},
		{"images", testImages},
		{"images in use", testImagesInUse},
		{"events", testEvents},
		{"lifecycle events", testGenerator},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

// A pod is one of a test's, removed when the test ends.
type pod struct {
	subject
	t       *testing.T
	uid     types.UID
	config  *runtimeapi.PodSandboxConfig
	sandbox string
}

// newPod starts a sandbox in the host's network, changed by edits.
func newPod(t *testing.T, s subject, edits ...func(*runtimeapi.PodSandboxConfig)) pod {
	t.Helper()
	name := strings.ToLower(strings.Map(func(r rune) rune {
		if r == '/' || r == '_' {
			return '-'
		}
		return r
	}, t.Name()))
	uid := "uid-" + name
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "tests", Uid: uid},
		LogDirectory: t.TempDir(),
		Labels: map[string]string{
			runtimelabels.PodName:      name,
			runtimelabels.PodNamespace: "tests",
			runtimelabels.PodUID:       uid,
		},
		Annotations: map[string]string{"example.com/kept": "as it is"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: s.cgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
			},
		},
	}
	for _, edit := range edits {
		edit(config)
	}
	id, err := s.RunSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(s.StopSandbox(ctx, id), s.RemoveSandbox(ctx, id)); err != nil {
			t.Errorf("clean-up: %v", err)
		}
	})
	return pod{s, t, types.UID(uid), config, id}
}

// create creates a container that runs the program of that name.
func (p pod) create(program string, edits ...func(*runtimeapi.ContainerConfig)) string {
	p.t.Helper()
	id, err := p.tryCreate(program, edits...)
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

func (p pod) tryCreate(program string, edits ...func(*runtimeapi.ContainerConfig)) (string, error) {
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: program},
		Image:    &runtimeapi.ImageSpec{Image: demoImage},
		Args:     programs[program],
		LogPath:  program + "/0.log",
		Labels: map[string]string{
			runtimelabels.PodName:       p.config.GetMetadata().GetName(),
			runtimelabels.PodNamespace:  "tests",
			runtimelabels.PodUID:        string(p.uid),
			runtimelabels.ContainerName: program,
		},
		Annotations: map[string]string{
			runtimelabels.ContainerHash: "abc123",
			runtimelabels.RestartCount:  "0",
		},
		Linux: &runtimeapi.LinuxContainerConfig{
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: p.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
			},
		},
	}
	for _, edit := range edits {
		edit(config)
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Join(p.config.GetLogDirectory(), config.GetLogPath())), 0o755); err != nil {
		return "", err
	}
	return p.CreateContainer(p.t.Context(), p.sandbox, config, p.config)
}

// start creates and starts a container.
func (p pod) start(program string, edits ...func(*runtimeapi.ContainerConfig)) string {
	p.t.Helper()
	id := p.create(program, edits...)
	if err := p.StartContainer(p.t.Context(), id); err != nil {
		p.t.Fatal(err)
	}
	return id
}

func (p pod) inspect() *observed.Status {
	p.t.Helper()
	got, err := p.Inspect(p.t.Context(), p.uid)
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// ended waits until a container has ended and returns its inspection.
func (p pod) ended(id string) observed.ContainerStatus {
	p.t.Helper()
	for range time.Tick(20 * time.Millisecond) {
		got := p.inspect()
		i := slices.IndexFunc(got.Containers, func(c observed.ContainerStatus) bool { return c.ID == id })
		if i < 0 {
			p.t.Fatalf("container %s is not there", id)
		}
		if got.Containers[i].State == observed.Exited {
			return got.Containers[i]
		}
		if p.t.Context().Err() != nil {
			break
		}
	}
	p.t.Fatal("test ended")
	return observed.ContainerStatus{}
}

// listed returns the pod as the list of all pods has it.
func (p pod) listed() *observed.Pod {
	p.t.Helper()
	all, err := p.Pods(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	for i := range all {
		if all[i].UID == p.uid {
			return &all[i]
		}
	}
	return nil
}

func testVersion(t *testing.T, s subject) {
	version, err := s.Version(t.Context())
	if err != nil || version.GetRuntimeName() == "" || version.GetRuntimeVersion() == "" || version.GetRuntimeApiVersion() != "v1" {
		t.Errorf("version = %v, %v", version, err)
	}
	status, err := s.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
		if !slices.ContainsFunc(status.GetStatus().GetConditions(), func(c *runtimeapi.RuntimeCondition) bool {
			return c.GetType() == kind && c.GetStatus()
		}) {
			t.Errorf("not %s: %v", kind, status)
		}
	}
}

// testLife goes through every state of a sandbox and a container; the list and
// the inspection agree in each.
func testLife(t *testing.T, s subject) {
	ctx, p := t.Context(), newPod(t, s)
	var id string
	want := func(sandbox, container observed.State) {
		t.Helper()
		var listed, inspected struct{ sandbox, container observed.State }
		if l := p.listed(); l != nil {
			if l.Name != p.config.GetMetadata().GetName() || l.Namespace != "tests" {
				t.Errorf("listed as %s/%s", l.Namespace, l.Name)
			}
			for _, box := range l.Sandboxes {
				listed.sandbox = box.State
			}
			for _, c := range l.Containers {
				listed.container = c.State
				if c.ID != id || c.Name != "runs" || c.SandboxID != p.sandbox {
					t.Errorf("listed container = %+v", c)
				}
			}
		}
		got := p.inspect()
		for _, box := range got.Sandboxes {
			inspected.sandbox = observed.Exited
			if box.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
				inspected.sandbox = observed.Running
			}
			if diff := cmp.Diff(p.config.GetAnnotations(), box.GetAnnotations()); diff != "" {
				t.Errorf("annotations of the sandbox (-want +got):\n%s", diff)
			}
		}
		for i := range got.Containers {
			inspected.container = got.Containers[i].State
		}
		for by, got := range map[string]struct{ sandbox, container observed.State }{"listed": listed, "inspected": inspected} {
			if got.sandbox != sandbox || got.container != container {
				t.Errorf("%s: got sandbox %q, container %q, want %q, %q", by, got.sandbox, got.container, sandbox, container)
			}
		}
		if running := sandbox == observed.Running || container == observed.Running; got.Running() != running {
			t.Errorf("Running() = %v, want %v", got.Running(), running)
		}
	}
	const none = observed.State("")
	want(observed.Running, none)
	id = p.create("runs")
	want(observed.Running, observed.Created)
	if c := p.inspect().Container("runs"); !c.StartedAt.IsZero() || !c.FinishedAt.IsZero() || c.CreatedAt.IsZero() {
		t.Errorf("times of a created container: %v, %v, %v", c.CreatedAt, c.StartedAt, c.FinishedAt)
	}
	if err := s.StartContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	want(observed.Running, observed.Running)
	if c := p.inspect().Container("runs"); c.StartedAt.Before(c.CreatedAt) || !c.FinishedAt.IsZero() {
		t.Errorf("times of a running container: %v, %v, %v", c.CreatedAt, c.StartedAt, c.FinishedAt)
	} else if c.Hash != "abc123" || c.Image != demoImage || c.ImageID == "" || c.Message != "" {
		t.Errorf("hash %q, image %q, image ID %q, message %q", c.Hash, c.Image, c.ImageID, c.Message)
	}
	if err := s.StopContainer(ctx, id, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	want(observed.Running, observed.Exited)
	if c := p.inspect().Container("runs"); c.FinishedAt.Before(c.StartedAt) || c.Reason == "" {
		t.Errorf("a stopped container: %v, %v, reason %q", c.StartedAt, c.FinishedAt, c.Reason)
	}
	if err := s.StopContainer(ctx, id, 0); err != nil {
		t.Errorf("stop again: %v", err)
	}
	if err := s.RemoveContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	want(observed.Running, none)
	if err := s.StopSandbox(ctx, p.sandbox); err != nil {
		t.Fatal(err)
	}
	want(observed.Exited, none)
	if err := s.RemoveSandbox(ctx, p.sandbox); err != nil {
		t.Fatal(err)
	}
	want(none, none)
	if p.listed() != nil {
		t.Error("the pod is still listed")
	}
}

func testUnknown(t *testing.T, s subject) {
	ctx := t.Context()
	got, err := s.Inspect(ctx, "nobody")
	if err != nil {
		t.Fatal(err)
	}
	got.Time = time.Time{}
	if diff := cmp.Diff(&observed.Status{UID: "nobody"}, got); diff != "" {
		t.Errorf("status of an unknown pod (-want +got):\n%s", diff)
	}
	for verb, err := range map[string]error{
		"stop sandbox":     s.StopSandbox(ctx, "nobody"),
		"remove sandbox":   s.RemoveSandbox(ctx, "nobody"),
		"stop container":   s.StopContainer(ctx, "nobody", time.Second),
		"remove container": s.RemoveContainer(ctx, "nobody"),
		"remove image":     s.RemoveImage(ctx, "holdfast.local/nobody:v1"),
	} {
		if err != nil {
			t.Errorf("%s that is not there: %v", verb, err)
		}
	}
	if err := s.StartContainer(ctx, "nobody"); !errors.Is(err, observed.ErrNotFound) {
		t.Errorf("start: %v, want not found", err)
	}
	if _, _, _, err := s.ExecSync(ctx, "nobody", []string{"/demo", "env"}, time.Second); !errors.Is(err, observed.ErrNotFound) {
		t.Errorf("exec: %v, want not found", err)
	}
}

func testEnds(t *testing.T, s subject) {
	p := newPod(t, s)
	for program, want := range map[string]struct {
		code   int32
		reason string
	}{"exits0": {0, "Completed"}, "exits7": {7, "Error"}} {
		got := p.ended(p.start(program))
		if got.ExitCode != want.code || got.Reason != want.reason || got.FinishedAt.IsZero() {
			t.Errorf("%s: code %d, reason %q, finished %v", program, got.ExitCode, got.Reason, got.FinishedAt)
		}
	}
}

func testMessage(t *testing.T, s subject) {
	p := newPod(t, s)
	file := filepath.Join(t.TempDir(), "message")
	if err := os.WriteFile(file, []byte("all is lost"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := p.start("exits7", func(c *runtimeapi.ContainerConfig) {
		c.Annotations[runtimelabels.TerminationMessagePath] = "/dev/termination-log"
		c.Annotations[runtimelabels.TerminationPolicy] = "File"
		c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: file}}
	})
	if got := p.ended(id); got.Message != "all is lost" {
		t.Errorf("message = %q", got.Message)
	}
}

// testRestart has two attempts of one container; the newest comes first.
func testRestart(t *testing.T, s subject) {
	p := newPod(t, s)
	p.ended(p.start("exits7"))
	second := p.start("exits7", func(c *runtimeapi.ContainerConfig) {
		c.Metadata.Attempt = 1
		c.Annotations[runtimelabels.RestartCount] = "1"
		c.LogPath = "exits7/1.log"
	})
	p.ended(second)
	got := p.inspect()
	if len(got.Containers) != 2 || got.Containers[0].ID != second || got.Containers[0].RestartCount != 1 || got.Containers[1].RestartCount != 0 {
		t.Errorf("containers = %+v", got.Containers)
	}
	if l := p.listed(); len(l.Containers) != 2 || l.Containers[0].ID != second || l.Containers[0].Attempt != 1 {
		t.Errorf("listed containers = %+v", l.Containers)
	}
}

func testNames(t *testing.T, s subject) {
	p := newPod(t, s)
	if id, err := s.RunSandbox(t.Context(), p.config, ""); err == nil {
		t.Errorf("a second sandbox of the same name and attempt: %s", id)
	}
	p.create("runs")
	if id, err := p.tryCreate("runs"); err == nil {
		t.Errorf("a second container of the same name and attempt: %s", id)
	}
	if _, err := s.RunSandbox(t.Context(), p.config, "no-such-handler"); err == nil {
		t.Error("a sandbox with an unknown handler")
	}
}

func testWrongOrder(t *testing.T, s subject) {
	p := newPod(t, s)
	id := p.start("runs")
	if err := s.StartContainer(t.Context(), id); err == nil {
		t.Error("started twice")
	}
	if _, err := p.tryCreate("exits0", func(c *runtimeapi.ContainerConfig) {
		c.Image.Image = "holdfast.local/nobody:v1"
	}); !errors.Is(err, observed.ErrNotFound) {
		t.Errorf("create with an image that is not there: %v, want not found", err)
	}
	late := p.create("exits7")
	if err := s.StopSandbox(t.Context(), p.sandbox); err != nil {
		t.Fatal(err)
	}
	if got := p.ended(id); got.FinishedAt.IsZero() {
		t.Error("stopping the sandbox did not end its container")
	}
	if err := s.StartContainer(t.Context(), late); err == nil {
		t.Error("started in a stopped sandbox")
	}
}

func testExecSync(t *testing.T, s subject) {
	p := newPod(t, s)
	id := p.start("runs")
	stdout, _, code, err := s.ExecSync(t.Context(), id, []string{"/demo", "echo", "hello"}, 20*time.Second)
	if string(stdout) != "hello\n" || code != 0 || err != nil {
		t.Errorf("echo: %q, %d, %v", stdout, code, err)
	}
	if _, _, code, err := s.ExecSync(t.Context(), id, []string{"/demo", "exit", "3"}, 0); code != 3 || err != nil {
		t.Errorf("exit: %d, %v, want 3", code, err)
	}
	_, _, _, err = s.ExecSync(t.Context(), id, []string{"/demo", "sleep", "1h"}, time.Second)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("sleep: %v, want deadline exceeded", err)
	}
	ended := p.start("exits0")
	p.ended(ended)
	if _, _, _, err := s.ExecSync(t.Context(), ended, []string{"/demo", "env"}, time.Second); err == nil {
		t.Error("ran a command in a container that has ended")
	}
}

func testStreams(t *testing.T, s subject) {
	p := newPod(t, s)
	id := p.start("runs")
	urls := map[string]func() (string, error){
		"exec": func() (string, error) {
			return s.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"/demo", "env"}, Stdout: true})
		},
		"attach": func() (string, error) {
			return s.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdout: true})
		},
		"port forward": func() (string, error) {
			return s.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: p.sandbox, Port: []int32{80}})
		},
	}
	for what, ask := range urls {
		if url, err := ask(); err != nil || !strings.HasPrefix(url, "http://") {
			t.Errorf("%s: %q, %v", what, url, err)
		}
	}
}

func testNetwork(t *testing.T, s subject) {
	if got := newPod(t, s).inspect(); len(got.IPs) != 0 {
		t.Errorf("addresses in the host's network: %v", got.IPs)
	}
	t.Run("own", func(t *testing.T) {
		p := newPod(t, s, func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_POD
		})
		if got := p.inspect(); len(got.IPs) == 0 {
			t.Error("no address")
		}
		if err := s.StopSandbox(t.Context(), p.sandbox); err != nil {
			t.Fatal(err)
		}
		if got := p.inspect(); len(got.IPs) != 0 {
			t.Errorf("addresses of a stopped sandbox: %v", got.IPs)
		}
	})
}

func testLog(t *testing.T, s subject) {
	p := newPod(t, s)
	path := p.ended(p.start("says")).LogPath
	if want := filepath.Join(p.config.GetLogDirectory(), "says/0.log"); path != want {
		t.Fatalf("log path = %q, want %q", path, want)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(data), " stdout F first line\n") {
		t.Errorf("log = %q", data)
	}
	id := p.start("runs")
	path = p.inspect().Container("runs").LogPath
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := s.ReopenLog(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("reopened log: %v", err)
	}
}

func testForcedRemoval(t *testing.T, s subject) {
	p := newPod(t, s)
	first, second := p.start("runs"), p.start("exits0")
	if err := s.RemoveContainer(t.Context(), first); err != nil {
		t.Errorf("remove a running container: %v", err)
	}
	p.start("runs", func(c *runtimeapi.ContainerConfig) { c.Metadata.Attempt = 1 })
	if err := s.RemoveSandbox(t.Context(), p.sandbox); err != nil {
		t.Errorf("remove a running sandbox: %v", err)
	}
	if got := p.inspect(); len(got.Containers)+len(got.Sandboxes) != 0 {
		t.Errorf("left: %+v (%s)", got, second)
	}
}

// testStartCalledOff ends the context of starts at every moment: none is broken off.
func testStartCalledOff(t *testing.T, s subject) {
	p := newPod(t, s)
	for i := range uint32(20) {
		id := p.create("runs", func(c *runtimeapi.ContainerConfig) { c.Metadata.Attempt = i })
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		err := s.StartContainer(ctx, id)
		cancel()
		if err != nil {
			t.Fatalf("start whose context ends after %d ms: %v", i, err)
		}
		if err := s.RemoveContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

// testClientDies breaks off the connection in a start, at every moment: the container
// can be removed nevertheless, as soon as the runtime has given up the start.
func testClientDies(t *testing.T, s subject) {
	p := newPod(t, s)
	for i := range uint32(30) {
		id := p.create("runs", func(c *runtimeapi.ContainerConfig) { c.Metadata.Attempt = i })
		after := time.Duration(2*i) * time.Millisecond
		startAndDie(t, s.endpoint, id, after)
		var err error
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if err = s.RemoveContainer(t.Context(), id); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("client died %v after the start: %v", after, err)
		}
	}
}

// startAndDie asks for the start of a container and closes the connection after that
// time.
func startAndDie(t *testing.T, endpoint, id string, after time.Duration) {
	t.Helper()
	conn, err := cri.Dial(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	client := cri.New(conn, cri.Config{})
	if _, err := client.Version(t.Context()); err != nil { // connected
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = client.StartContainer(t.Context(), id) // either end is well
	}()
	select {
	case <-time.After(after):
	case <-ended:
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}
