package devices_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/devices"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
	"github.com/holdfast-dev/holdfast/test/deviceplugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const disk = "example.com/disk"

// agent is a Manager that runs in the folder of a test.
type agent struct {
	*devices.Manager
	t    *testing.T
	stop func()
}

func startAgent(t *testing.T, dir string) *agent {
	t.Helper()
	m, err := devices.New(devices.Config{Dir: dir, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return &agent{Manager: m, t: t, stop: runtest.Start(t, m.Run)}
}

// eventually waits, with patience, until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// counts waits until the node has a capacity of devices, and how many may be given.
func (a *agent) counts(capacity, allocatable string) {
	a.t.Helper()
	want := capacity + " " + allocatable
	eventually(a.t, "devices of the node", func() error {
		all, free, _ := a.Resources()
		has, may := all[disk], free[disk]
		if got := has.String() + " " + may.String(); got != want {
			return errors.New("got " + got + ", want " + want)
		}
		return nil
	})
}

// admit asks until it is known whether a pod has its devices, as the loop does.
func (a *agent) admit(pod *v1.Pod, others ...*v1.Pod) error {
	a.t.Helper()
	for {
		known, err := a.Admit(pod, others)
		if known {
			return err
		}
		select {
		case <-a.Decided():
		case <-time.After(time.Minute):
			a.t.Fatal("nobody decides")
		}
	}
}

// variable returns which devices a container has.
func (a *agent) variable(pod *v1.Pod, container int) string {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), time.Minute)
	defer cancel()
	given, err := a.Container(ctx, pod, &pod.Spec.Containers[container])
	if err != nil {
		a.t.Fatal(err)
	}
	for _, v := range given.Env {
		if v.Name == deviceplugin.Variable {
			return v.Value
		}
	}
	return ""
}

// asking returns a container that asks for devices.
func asking(name, count string) v1.Container {
	quantity := v1.ResourceList{disk: resource.MustParse(count)}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: quantity, Requests: quantity}}
}

func podOf(name string, containers ...v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: containers},
	}
}

func plugin(t *testing.T, dir string, change func(*deviceplugin.Config)) (p *deviceplugin.Plugin, stop func()) {
	t.Helper()
	cfg := deviceplugin.Config{Dir: dir, Resource: disk, Devices: []string{"a", "b", "c", "d"}}
	if change != nil {
		change(&cfg)
	}
	p = deviceplugin.New(cfg)
	return p, runtest.Start(t, p.Run)
}

// Pods get devices of their own, and as many as there are.
func TestGive(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir)
	p, _ := plugin(t, dir, func(c *deviceplugin.Config) { c.PreStart = true })
	a.counts("4", "4")

	one, two := podOf("one", asking("x", "1"), asking("y", "2")), podOf("two", asking("x", "2"))
	if err := a.admit(one); err != nil {
		t.Fatal(err)
	}
	if got, want := a.variable(one, 0)+", "+a.variable(one, 1), "a, b c"; got != want {
		t.Errorf("the pod has the devices %q, want %q", got, want)
	}
	err := a.admit(two, one)
	if err == nil || err.Error() != "requested number of devices unavailable for example.com/disk. Requested: 2, Available: 1" {
		t.Errorf("too many: got %v", err)
	}
	if err := a.admit(two); err != nil { // the first has ended
		t.Errorf("the devices of a pod that ended are not given again: %v", err)
	}
	want := []string{"Allocate a", "Allocate b c", "PreStartContainer a", "PreStartContainer b c", "Allocate a b"}
	if diff := cmp.Diff(want, p.Calls()); diff != "" {
		t.Errorf("calls of the plugin (-want +got):\n%s", diff)
	}
	if err := a.admit(podOf("none", v1.Container{Name: "x"}), two); err != nil {
		t.Errorf("a pod without devices: %v", err)
	}
}

// What init containers had is given again, but for sidecars'.
func TestReuse(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir)
	p, _ := plugin(t, dir, nil)
	a.counts("4", "4")
	pod := podOf("pod", asking("main", "3"))
	sidecar := asking("sidecar", "1")
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	pod.Spec.InitContainers = []v1.Container{asking("first", "2"), sidecar, asking("last", "1")}
	if err := a.admit(pod); err != nil {
		t.Fatal(err)
	}
	// The sidecar keeps one of what the first had; the last has the other.
	want := []string{"Allocate a b", "Allocate a", "Allocate b", "Allocate b c d"}
	if diff := cmp.Diff(want, p.Calls()); diff != "" {
		t.Errorf("calls of the plugin (-want +got):\n%s", diff)
	}
}

// A plugin that has preferences is asked for them.
func TestPreference(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir)
	plugin(t, dir, func(c *deviceplugin.Config) {
		c.Prefer = func(available, include []string, count int) []string {
			slices.Reverse(available)
			return append(include, available...)[:count]
		}
	})
	a.counts("4", "4")
	pod := podOf("pod", asking("x", "2"))
	if err := a.admit(pod); err != nil {
		t.Fatal(err)
	}
	if got, want := a.variable(pod, 0), "c d"; got != want {
		t.Errorf("got the devices %q, want %q", got, want)
	}
}

// Ill devices are not given, and what has them is told of; without its plugin no
// device is, and with it all are as they were.
func TestHealth(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir)
	p, stop := plugin(t, dir, nil)
	a.counts("4", "4")
	pod := podOf("pod", asking("x", "1"))
	if err := a.admit(pod); err != nil {
		t.Fatal(err)
	}
	p.SetIll("a", true)
	a.counts("4", "3")
	want := []v1.ResourceStatus{{Name: disk, Resources: []v1.ResourceHealth{{ResourceID: "a", Health: v1.ResourceHealthStatusUnhealthy}}}}
	if diff := cmp.Diff(want, a.Health(pod.UID, "x")); diff != "" {
		t.Errorf("health of the container's devices (-want +got):\n%s", diff)
	}
	stop()
	a.counts("4", "0")
	err := a.admit(podOf("late", asking("x", "1")), pod)
	if err == nil || err.Error() != "no healthy devices present; cannot allocate unhealthy devices example.com/disk" {
		t.Errorf("a pod without a plugin: got %v", err)
	}
	if got, want := a.variable(pod, 0), "a"; got != want { // its container starts again
		t.Errorf("without its plugin the container has %q, want %q", got, want)
	}
	plugin(t, dir, nil)
	a.counts("4", "4")
}

// The next agent knows what was given, and has plugins register again.
func TestNextAgent(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir)
	p, _ := plugin(t, dir, nil)
	a.counts("4", "4")
	pod := podOf("pod", asking("x", "2"))
	if err := a.admit(pod); err != nil {
		t.Fatal(err)
	}
	a.stop()

	a = startAgent(t, dir)
	if got, want := a.variable(pod, 0), "a b"; got != want {
		t.Errorf("the container has %q, want %q", got, want)
	}
	a.counts("4", "4")
	if err := a.admit(podOf("other", asking("x", "3")), pod); err == nil {
		t.Error("the devices of a pod that was there before were given to another")
	}
	if got, want := len(a.Devices(pod.UID, "x")), 2; got != want {
		t.Errorf("the API of pod resources has %d devices of the container, want %d", got, want)
	}
	if got, want := len(a.Allocatable()), 4; got != want {
		t.Errorf("the API of pod resources has %d devices, want %d", got, want)
	}
	if got, want := strings.Join(p.Calls(), ", "), "Allocate a b"; got != want {
		t.Errorf("calls of the plugin: got %q, want %q", got, want)
	}
}

// A container of a pod that nobody admitted, as it was restored, gets its devices
// when it starts.
func TestLate(t *testing.T) {
	dir := t.TempDir()
	a := startAgent(t, dir)
	plugin(t, dir, nil)
	a.counts("4", "4")
	if got, want := a.variable(podOf("pod", asking("x", "2")), 0), "a b"; got != want {
		t.Errorf("the container has %q, want %q", got, want)
	}
}

// A plugin whose socket has a path that is too long for one, as seen from here, serves
// like any other.
func TestLongPath(t *testing.T) {
	short := t.TempDir()
	dir := filepath.Join(short, strings.Repeat("l", max(1, 90-len(short))))
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(short, "s")); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, dir)
	plugin(t, filepath.Join(short, "s"), nil)
	a.counts("4", "4")
}

// A file that is not ours is put aside.
func TestForeignRecord(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kubelet_internal_checkpoint")
	if err := os.WriteFile(path, []byte(`{"Data":{"PodDeviceEntries":null},"Checksum":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	startAgent(t, dir)
	if _, err := os.Stat(path + ".aside"); err != nil {
		t.Errorf("the file was not put aside: %v", err)
	}
}

// Registrations that cannot be are refused, with what is wrong.
func TestRefused(t *testing.T) {
	a := startAgent(t, t.TempDir())
	for name, c := range map[string]struct{ resource, version, want string }{
		"a version that is not known":    {disk, "v1alpha1", `the versions ["v1alpha1"] of the device plugin API are not supported: serve one of ["v1beta1"]`},
		"a resource of Kubernetes's own": {"kubernetes.io/disk", "v1beta1", `"kubernetes.io/disk" cannot be the name of a device plugin's resource: it has to be like example.com/device`},
	} {
		t.Run(name, func(t *testing.T) {
			err := a.Register(t.Context(), c.resource, "/nowhere", []string{c.version})
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
