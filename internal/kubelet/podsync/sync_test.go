package podsync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

func TestStartsAPod(t *testing.T) {
	w := newWorld(t, nil)
	w.pod.Spec.Containers = append(w.pod.Spec.Containers, v1.Container{Name: "side", Image: image})
	w.mustSync()
	w.wantRunning("main side")
	want := []string{
		`Normal Pulled Container image "holdfast.local/demo:1" already present on machine and can be accessed by the pod`,
		"Normal Created Container created",
		"Normal Started Container started",
	}
	if diff := cmp.Diff(w.eventsSoFar(), append(want, want...)); diff != "" {
		t.Errorf("events: got -, want +:\n%s", diff)
	}
	config := w.fake.Config(w.newest("main").ID)
	mounts := map[string]string{}
	for _, m := range config.GetMounts() {
		mounts[m.GetContainerPath()] = strings.TrimPrefix(m.GetHostPath(), w.root)
	}
	wantMounts := map[string]string{
		"/etc/hosts":           "/kubelet/pods/u1/etc-hosts",
		"/dev/termination-log": "/kubelet/pods/u1/containers/main/0",
	}
	if diff := cmp.Diff(mounts, wantMounts); diff != "" {
		t.Errorf("mounts: got -, want +:\n%s", diff)
	}
	hosts, err := os.ReadFile(w.root + "/kubelet/pods/u1/etc-hosts")
	if err != nil || !strings.Contains(string(hosts), w.inspect().IPs[0]+"\tweb\n") {
		t.Errorf("hosts file has no line of the pod's address: %v\n%s", err, hosts)
	}

	calls := len(w.fake.Calls("RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "PullImage"))
	w.mustSync()
	if again := len(w.fake.Calls("RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "PullImage")); again != calls {
		t.Errorf("a second step made %d changes, want none", again-calls)
	}
}

func TestSubPath(t *testing.T) {
	w := newWorld(t, nil)
	w.paths["v"] = "/volumes/v"
	w.main().Env = []v1.EnvVar{{Name: "PART", Value: "b"}}
	w.main().VolumeMounts = []v1.VolumeMount{
		{Name: "v", MountPath: "/whole"},
		{Name: "v", MountPath: "/part", SubPathExpr: "a/$(PART)", ReadOnly: true},
	}
	w.partErr = errors.New("/secret/place is a link")
	w.mustSync()
	w.wantRunning("")
	w.wantWait("main", "CreateContainerConfigError", `failed to prepare subPath for volumeMount "v" of container "main"`)
	w.mu.Lock()
	if strings.Contains(w.waits["main"].Message, "secret") {
		t.Errorf("the pod's owner learns of the node's files: %s", w.waits["main"].Message)
	}
	w.parts, w.partErr = nil, nil
	w.mu.Unlock()

	w.mustSync()
	w.wantRunning("main")
	if diff := cmp.Diff(w.parts, []podvolumes.SubPath{{PodUID: "u1", Volume: "v", Path: "a/b", Container: "main", Index: 1}}); diff != "" {
		t.Errorf("parts: got -, want +:\n%s", diff)
	}
	got := map[string]string{}
	for _, m := range w.fake.Config(w.newest("main").ID).GetMounts() {
		if strings.HasPrefix(m.GetHostPath(), "/volumes") {
			got[m.GetContainerPath()] = fmt.Sprint(m.GetHostPath(), " ", m.GetReadonly())
		}
	}
	if diff := cmp.Diff(got, map[string]string{"/whole": "/volumes/v false", "/part": "/volumes/v/a/b true"}); diff != "" {
		t.Errorf("mounts: got -, want +:\n%s", diff)
	}
}

func TestVolumeDevices(t *testing.T) {
	w := newWorld(t, nil)
	w.main().VolumeDevices = []v1.VolumeDevice{{Name: "raw", DevicePath: "/dev/xvda"}, {Name: "kept", DevicePath: "/dev/xvdb"}}
	w.devices = map[string]podvolumes.Device{"raw": {Path: "/pods/u1/raw"}}
	w.mustSync()
	w.wantRunning("")
	w.wantWait("main", "CreateContainerConfigError", `cannot find volume "kept" to pass into container "main"`)

	w.devices["kept"] = podvolumes.Device{Path: "/pods/u1/kept", ReadOnly: true}
	w.mustSync()
	w.wantRunning("main")
	var got []string
	for _, d := range w.fake.Config(w.newest("main").ID).GetDevices() {
		got = append(got, d.GetContainerPath()+" "+d.GetHostPath()+" "+d.GetPermissions())
	}
	if diff := cmp.Diff(got, []string{"/dev/xvda /pods/u1/raw mrw", "/dev/xvdb /pods/u1/kept r"}); diff != "" {
		t.Errorf("devices: got -, want +:\n%s", diff)
	}
}

// TestServicesAreAway holds that a container waits for the services of the API
// only if its environment depends on them.
func TestServicesAreAway(t *testing.T) {
	tests := []struct {
		name  string
		host  string // the node's own service
		links *bool
		want  string // what runs
	}{
		{"the API's own service is needed", "", new(false), ""},
		{"links are wanted", "10.88.0.1", nil, ""},
		{"nothing is needed", "10.88.0.1", new(false), "main"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) {
				c.Services = func(context.Context, string) ([]*v1.Service, error) { return nil, errors.New("away") }
				node := c.Node()
				node.ServiceHost = test.host
				c.Node = func() *podfiles.Node { return node }
			})
			w.pod.Spec.EnableServiceLinks = test.links
			w.mustSync()
			w.wantRunning(test.want)
			if test.want == "" {
				w.wantWait("main", "CreateContainerConfigError", "services have not been read")
				w.wantRetry(time.Second)
			}
		})
	}
}

// TestGoesOnAfterARestart holds that a new process leaves alone what runs.
func TestGoesOnAfterARestart(t *testing.T) {
	w := newWorld(t, nil)
	w.mustSync()
	before := w.newest("main").ID
	w.Syncer = New(w.cfg)
	w.mustSync()
	if got := w.newest("main"); got.ID != before || got.RestartCount != 0 {
		t.Errorf("got container %s with %d restarts, want %s with none", got.ID, got.RestartCount, before)
	}
}

func TestRestartsWithBackOff(t *testing.T) {
	w := newWorld(t, nil)
	w.mustSync()
	if err := w.fake.Exit(w.newest("main").ID, 1); err != nil {
		t.Fatal(err)
	}
	w.mustSync() // the first restart is at once
	if got := w.newest("main"); got.RestartCount != 1 || got.State != observed.Running {
		t.Fatalf("after one exit: %+v, want it running, restarted once", got)
	}
	if err := w.fake.Exit(w.newest("main").ID, 1); err != nil {
		t.Fatal(err)
	}
	w.eventsSoFar()
	w.mustSync()
	w.mustSync()
	w.wantRunning("")
	w.wantWait("main", "CrashLoopBackOff", "back-off 10s restarting failed container=main pod=web_shop(u1)")
	w.wantRetry(10 * time.Second)
	if diff := cmp.Diff(w.eventsSoFar(), []string{"Warning BackOff Back-off restarting failed container main in pod web_shop(u1)"}); diff != "" {
		t.Errorf("events: got -, want +:\n%s", diff)
	}
}

// TestBackoffOfAnotherImage: a container that is given another image starts at
// once, and its pauses begin with the shortest again.
func TestBackoffOfAnotherImage(t *testing.T) {
	w := newWorld(t, nil)
	crash := func() {
		t.Helper()
		if err := w.fake.Exit(w.newest("main").ID, 1); err != nil {
			t.Fatal(err)
		}
		w.mustSync()
	}
	w.mustSync()
	crash()
	crash()
	w.wantWait("main", "CrashLoopBackOff", "back-off 10s")
	const other = "holdfast.local/demo:2"
	w.fake.AddImage(other)
	w.main().Image = other
	w.mustSync()
	w.wantRunning("main")
	crash()
	w.wantWait("main", "CrashLoopBackOff", "back-off 10s")
}

func TestMaxCrashBackoff(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxCrashBackoff = 3 * time.Second })
	w.mustSync()
	for range 2 {
		if err := w.fake.Exit(w.newest("main").ID, 1); err != nil {
			t.Fatal(err)
		}
		w.mustSync()
	}
	w.wantWait("main", "CrashLoopBackOff", "back-off 3s restarting")
}

func TestKeepsOneDead(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.CrashBackoff = time.Nanosecond })
	for range 4 {
		w.mustSync()
		if err := w.fake.Exit(w.newest("main").ID, 1); err != nil {
			t.Fatal(err)
		}
	}
	w.mustSync()
	w.mustSync()
	var got []string
	for _, c := range w.inspect().Containers {
		got = append(got, fmt.Sprint(c.Name, c.RestartCount, " ", c.State))
	}
	if diff := cmp.Diff(got, []string{"main4 running", "main3 exited"}); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	logs, err := filepath.Glob(w.root + "/logs/shop_web_u1/main/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, log := range logs {
		if base := filepath.Base(log); base != "4.log" && base != "3.log" {
			t.Errorf("log %s was left", base)
		}
	}
}

func TestLogsRememberRestarts(t *testing.T) {
	w := newWorld(t, nil)
	dir := w.root + "/logs/shop_web_u1/main"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2.log", "3.log.20260101-000000.gz", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.mustSync()
	if got := w.newest("main").RestartCount; got != 4 {
		t.Errorf("got restart count %d, want 4", got)
	}
}

func TestNewSandboxWhenItDies(t *testing.T) {
	w := newWorld(t, nil)
	w.mustSync()
	if err := w.fake.KillSandbox(w.fake.Sandboxes("shop", "web")[0]); err != nil {
		t.Fatal(err)
	}
	w.mustSync()
	w.wantRunning("main")
	w.wantEvents("Normal SandboxChanged Pod sandbox changed, it will be killed and re-created.")
	if got := w.inspect().ReadySandbox().GetMetadata().GetAttempt(); got != 1 {
		t.Errorf("got sandbox attempt %d, want 1", got)
	}
}

func TestSandboxThatCannotStart(t *testing.T) {
	w := newWorld(t, nil)
	w.fake.Inject(crifake.Fault{Op: "RunPodSandbox", Times: 1, Err: errors.New("no room")})
	if err := w.sync(); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Fatalf("got %v, want the runtime's error", err)
	}
	if got := w.eventsSoFar(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning FailedCreatePodSandBox Failed to create pod sandbox: ") {
		t.Errorf("got events %q", got)
	}
	w.mustSync()
	w.wantRunning("main")
}

func TestWaitsForTheNetwork(t *testing.T) {
	down := errors.New("cni plugin not initialized")
	w := newWorld(t, func(c *Config) { c.NetworkReady = func() error { return down } })
	if err := w.sync(); !errors.Is(err, down) && (err == nil || !strings.Contains(err.Error(), down.Error())) {
		t.Errorf("got %v, want %v", err, down)
	}
	w.wantEvents("Warning NetworkNotReady network is not ready: cni plugin not initialized")
	w.pod.Spec.HostNetwork = true
	w.mustSync()
	w.wantRunning("main")
}

func TestContainersThatCannotStart(t *testing.T) {
	t.Run("missing config map", func(t *testing.T) {
		w := newWorld(t, nil)
		w.main().EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "later"}}}}
		w.pod.Spec.Containers = append(w.pod.Spec.Containers, v1.Container{Name: "other", Image: image})
		w.mustSync()
		w.wantRunning("other") // the one does not keep back the other
		w.wantWait("main", "CreateContainerConfigError", `configmaps "later" not found`)
		w.wantRetry(time.Second)
		w.wantEvents(`Warning Failed Error: configmaps "later" not found`)
		w.maps["later"] = &v1.ConfigMap{Data: map[string]string{"A": "1"}}
		w.mustSync()
		w.wantRunning("main other")
		w.wantWait("main", "", "")
	})
	t.Run("missing at a restart", func(t *testing.T) {
		w := newWorld(t, nil)
		w.mustSync()
		if err := w.fake.Exit(w.newest("main").ID, 1); err != nil {
			t.Fatal(err)
		}
		w.main().EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "later"}}}}
		for range 5 {
			w.mustSync() // waiting for an object is no crash
			w.wantWait("main", "CreateContainerConfigError", "later")
		}
		w.secrets["later"] = &v1.Secret{}
		w.mustSync()
		w.wantRunning("main")
	})
	t.Run("create fails", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.Inject(crifake.Fault{Op: "CreateContainer", Times: 1, Err: errors.New("bad mount")})
		if err := w.sync(); err == nil {
			t.Error("got no error")
		}
		w.wantWait("main", "CreateContainerError", "bad mount")
		w.mustSync()
		w.wantRunning("main")
	})
	t.Run("start fails", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.SetProgram("main", crifake.Program{Fails: "exec: no such file"})
		if err := w.sync(); err == nil {
			t.Error("got no error")
		}
		w.wantWait("main", "RunContainerError", "exec: no such file")
	})
	t.Run("created by a process that died", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.Inject(crifake.Fault{Op: "StartContainer", Times: 1, Err: errors.New("gone")})
		if err := w.sync(); err == nil {
			t.Error("got no error")
		}
		w.mustSync()
		if got := w.newest("main"); got.State != observed.Running || got.RestartCount != 0 {
			t.Errorf("got %v with %d restarts, want it running with none", got.State, got.RestartCount)
		}
	})
	t.Run("unknown volume", func(t *testing.T) {
		w := newWorld(t, nil)
		w.main().VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
		w.mustSync()
		w.wantWait("main", "CreateContainerConfigError", `cannot find volume "v" to mount into container "main"`)
	})
}

func TestVolumes(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MountNotice, c.MountWait = time.Millisecond, 20*time.Millisecond })
	w.mount = errors.New("unmounted volumes=[v]")
	if err := w.sync(); err == nil || !strings.Contains(err.Error(), "unmounted volumes=[v]") {
		t.Errorf("got %v, want what is missing", err)
	}
	w.wantEvents("Warning FailedMount Unable to attach or mount volumes: unmounted volumes=[v]")
	w.mount = &podvolumes.WaitingError{Ref: podvolumes.Ref{Kind: podvolumes.RefConfigMap, Namespace: "shop", Name: "m"}, Volume: "v", Err: errors.New("not found")}
	if err := w.sync(); !errors.Is(err, podvolumes.ErrWaiting) {
		t.Errorf("got %v, want ErrWaiting", err)
	}
	if got := w.eventsSoFar(); len(got) == 0 || got[0] != `Warning FailedMount MountVolume.SetUp failed for volume "v" : ConfigMap shop/m: not found` {
		t.Errorf("got events %q", got)
	}
	if got := w.fake.Calls("RunPodSandbox"); len(got) > 0 {
		t.Error("a sandbox was made before the volumes were ready")
	}
	w.mount = nil
	w.paths["v"] = t.TempDir()
	w.main().VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v", ReadOnly: true}}
	w.mustSync()
	m := w.fake.Config(w.newest("main").ID).GetMounts()[0]
	if m.GetHostPath() != w.paths["v"] || !m.GetReadonly() {
		t.Errorf("got mount %v", m)
	}
}

// TestOnePullAtATime holds that pods that want one image do not pull it side
// by side, and that one that gives up does not stop the others.
func TestStopsAPod(t *testing.T) {
	w := newWorld(t, nil)
	w.mustSync()
	w.eventsSoFar()
	if err := w.SyncTerminating(t.Context(), w.pod, w.inspect(), new(int64(7))); err != nil {
		t.Fatal(err)
	}
	if st := w.inspect(); st.Running() || len(st.Containers) != 1 {
		t.Errorf("got %+v, want one dead container", st)
	}
	w.wantEvents("Normal Killing Stopping container main")

	if err := w.terminated(t.Context(), w.inspect()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.log, []string{"unmount", "remove cgroup"}); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	if st := w.inspect(); len(st.Containers) != 1 {
		t.Errorf("the dead container of a pod that stays is gone")
	}

	w.pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if err := w.terminated(t.Context(), w.inspect()); err != nil {
		t.Fatal(err)
	}
	if st := w.inspect(); len(st.Containers) != 0 || len(st.Sandboxes) != 0 {
		t.Errorf("got %+v, want nothing", st)
	}
	if _, err := os.Stat(w.root + "/logs/shop_web_u1"); !os.IsNotExist(err) {
		t.Errorf("the log folder is left: %v", err)
	}
}

// TestKeepsOneDeadContainerOfEachName holds that of a pod that has ended and
// stays in the API the last run stays readable, and no more.
func TestKeepsOneDeadContainerOfEachName(t *testing.T) {
	w := newWorld(t, nil)
	w.pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	w.mustSync()
	if err := w.fake.Exit(w.newest("main").ID, 1); err != nil {
		t.Fatal(err)
	}
	w.mustSync()
	last := w.newest("main")
	if err := w.fake.Exit(last.ID, 0); err != nil {
		t.Fatal(err)
	}
	if st := w.inspect(); len(st.Containers) != 2 {
		t.Fatalf("%d containers, want two that are dead", len(st.Containers))
	}
	if err := w.terminated(t.Context(), w.inspect()); err != nil {
		t.Fatal(err)
	}
	if st := w.inspect(); len(st.Containers) != 1 || st.Containers[0].ID != last.ID || len(st.Sandboxes) != 1 {
		t.Errorf("got %+v, want the last container and its sandbox", st)
	}
}

func TestStopThatFails(t *testing.T) {
	w := newWorld(t, nil)
	w.mustSync()
	w.fake.Inject(crifake.Fault{Op: "StopContainer", Times: 1, Err: errors.New("stuck")})
	if err := w.SyncTerminating(t.Context(), w.pod, w.inspect(), new(int64(2))); err == nil {
		t.Error("got no error while a container runs")
	}
	w.wantRunning("main")
	if err := w.SyncTerminating(t.Context(), w.pod, w.inspect(), new(int64(2))); err != nil {
		t.Error(err)
	}
}

func TestOrphan(t *testing.T) {
	w := newWorld(t, nil)
	w.pod.Spec.TerminationGracePeriodSeconds = new(int64(7))
	w.mustSync()
	graces := make(chan int64, 1)
	w.fake.Inject(crifake.Fault{Op: "StopContainer", Match: func(req any) bool {
		graces <- req.(*runtimeapi.StopContainerRequest).GetTimeout()
		return false
	}})
	orphan := observed.Pod{UID: w.pod.UID, Name: w.pod.Name, Namespace: w.pod.Namespace}
	if err := w.SyncOrphan(t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	if got := <-graces; got != 7 {
		t.Errorf("got a grace period of %d s, want the pod's 7", got)
	}
	if st := w.inspect(); len(st.Containers) != 0 || len(st.Sandboxes) != 0 {
		t.Errorf("got %+v, want nothing", st)
	}
	if diff := cmp.Diff(w.log, []string{"unmount", "remove cgroup"}); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
}

// TestSidecarsEndLast holds the order of the stop: regular containers, then
// sidecars from the last to the first.
func TestSidecarsEndLast(t *testing.T) {
	w := newWorld(t, nil)
	always := v1.ContainerRestartPolicyAlways
	w.pod.Spec.InitContainers = []v1.Container{
		{Name: "s1", Image: image, RestartPolicy: &always}, {Name: "s2", Image: image, RestartPolicy: &always},
	}
	w.mustSync()
	w.mustSync()
	w.mustSync()
	w.wantRunning("main s1 s2")
	names := map[string]string{}
	for _, c := range w.inspect().Containers {
		names[c.ID] = c.Name
	}
	order := make(chan string, 3)
	w.fake.Inject(crifake.Fault{Op: "StopContainer", Delay: 20 * time.Millisecond, Match: func(req any) bool {
		order <- names[req.(*runtimeapi.StopContainerRequest).GetContainerId()]
		return true
	}})
	if err := w.SyncTerminating(t.Context(), w.pod, w.inspect(), new(int64(30))); err != nil {
		t.Fatal(err)
	}
	got := []string{<-order, <-order, <-order}
	if diff := cmp.Diff(got, []string{"main", "s2", "s1"}); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
}

func TestInitContainers(t *testing.T) {
	w := newWorld(t, nil)
	w.pod.Spec.InitContainers = []v1.Container{{Name: "i1", Image: image}, {Name: "i2", Image: image}}
	w.mustSync()
	w.wantRunning("i1")
	if err := w.fake.Exit(w.newest("i1").ID, 0); err != nil {
		t.Fatal(err)
	}
	w.mustSync()
	w.wantRunning("i2")
	if err := w.fake.Exit(w.newest("i2").ID, 0); err != nil {
		t.Fatal(err)
	}
	w.mustSync()
	w.wantRunning("main")
}

func TestTerminal(t *testing.T) {
	w := newWorld(t, nil)
	w.phase = v1.PodSucceeded
	terminal, err := w.SyncPod(t.Context(), w.pod, nil, w.inspect())
	if err != nil || !terminal {
		t.Errorf("got %v and %v, want terminal", terminal, err)
	}
	if got := w.fake.Calls("RunPodSandbox"); len(got) > 0 {
		t.Error("a pod that has ended was started")
	}
}

func TestCancelUndoesNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.mustSync()
	w.main().Image = "reg.example/app:3"
	w.fake.Hang("StopContainer")
	defer w.fake.Clear("StopContainer")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.SyncPod(ctx, w.pod, nil, w.inspect()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
	w.wantRunning("main")
}

// An ephemeral container comes after admission, so that a field that is not
// done keeps it from starting, and nothing else.
func TestEphemeral(t *testing.T) {
	w := newWorld(t, nil)
	w.pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "shell", Image: image}, TargetContainerName: "main"},
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "disk", Image: image, Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "d"}}}}},
	}
	w.mustSync() // makes the sandbox and the pod's own containers
	w.mustSync()
	w.wantRunning("main shell")
	w.wantWait("disk", "CreateContainerConfigError", "spec.ephemeralContainers[1].resources.claims")
	options := w.fake.Config(w.newest("shell").ID).GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options.GetPid() != runtimeapi.NamespaceMode_TARGET || options.GetTargetId() != w.newest("main").ID {
		t.Errorf("namespaces: %v", options)
	}
}

// TestDeadline holds that the end of a pod's time is an event, and starts nothing.
func TestDeadline(t *testing.T) {
	w := newWorld(t, nil)
	w.phase, w.why = v1.PodFailed, "DeadlineExceeded"
	terminal, err := w.SyncPod(t.Context(), w.pod, nil, w.inspect())
	if !terminal || err != nil {
		t.Errorf("got %v, %v; want the end", terminal, err)
	}
	w.wantEvents("Normal DeadlineExceeded DeadlineExceeded")
}
