package podsync

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfolder"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

const image = "holdfast.local/demo:1"

// world is a Syncer with all that it needs: a fake runtime behind the real
// adapter, a folder, and fakes of the rest that remember what they were told.
type world struct {
	*Syncer
	t       *testing.T
	fake    *crifake.Fake
	runtime *cri.Runtime
	events  *record.FakeRecorder
	pod     *v1.Pod
	root    string

	mu                 sync.Mutex // guards the fields below
	log                []string   // what volumes and cgroups were asked, in order
	waits              map[string]reason.Wait
	phase              v1.PodPhase
	why                string // reason and message of the phase
	conditions         []v1.PodCondition
	progress, reported *allocation.Progress // as set, and as of the last Report
	mount              error                // why volumes are not ready
	paths              map[string]string
	devices            map[string]podvolumes.Device
	parts              []podvolumes.SubPath // that were asked for
	readOnly           string               // a volume that is
	partErr            error
	secrets            map[string]*v1.Secret
	maps               map[string]*v1.ConfigMap
	classes            map[string]string // runtime classes and their handlers
	asked              func()            // after each question for a class, with the lock
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	fake := crifake.Start(t)
	fake.AddImage(image)
	for state := fake.Conn().GetState(); state != connectivity.Ready; state = fake.Conn().GetState() {
		fake.Conn().Connect() // again after a try that took too long
		fake.Conn().WaitForStateChange(t.Context(), state)
	}
	w := &world{
		t: t, fake: fake, runtime: cri.New(fake.Conn(), cri.Config{}), root: t.TempDir(),
		events:  record.NewFakeRecorder(10000),
		paths:   map[string]string{},
		secrets: map[string]*v1.Secret{},
		maps:    map[string]*v1.ConfigMap{},
		pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1"},
			Spec: v1.PodSpec{
				RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: new(int64(30)),
				Containers: []v1.Container{{Name: "main", Image: image, TerminationMessagePath: "/dev/termination-log"}},
			},
		},
	}
	cfg := Config{
		Log: slog.New(slog.DiscardHandler), Recorder: w.events, Runtime: w.runtime,
		Volumes: (*worldVolumes)(w), Statuses: (*worldStatuses)(w), Cgroups: (*worldCgroups)(w), Objects: (*worldObjects)(w),
		Folders: podfolder.New(w.root+"/kubelet", w.root+"/logs"),
		Node: func() *podfiles.Node {
			return &podfiles.Node{Name: "n", IPs: []string{"192.0.2.1"}, PodLogs: w.root + "/logs"}
		},
	}
	if change != nil {
		change(&cfg)
	}
	w.Syncer = New(cfg)
	return w
}

// terminated makes the last step of a pod's life, as a worker does.
func (w *world) terminated(ctx context.Context, status *observed.Status) error {
	if err := w.SyncTerminated(ctx, w.pod, status); err != nil {
		return err
	}
	return w.SyncRemains(ctx, w.pod, status)
}

type (
	worldVolumes  world
	worldStatuses world
	worldCgroups  world
	worldObjects  world
)

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, what)
}

func (v *worldVolumes) WaitForMount(ctx context.Context, _ *v1.Pod) error {
	v.mu.Lock()
	err := v.mount
	v.mu.Unlock()
	if err != nil {
		<-ctx.Done()
	}
	return err
}

func (v *worldVolumes) Paths(types.UID) map[string]string { return v.paths }

func (v *worldVolumes) ReadOnly(_ types.UID, volume string) bool { return v.readOnly == volume }

func (v *worldVolumes) Devices(types.UID) map[string]podvolumes.Device { return v.devices }

func (v *worldVolumes) SubPath(_ context.Context, part podvolumes.SubPath) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.parts = append(v.parts, part)
	return filepath.Join(v.paths[part.Volume], part.Path), v.partErr
}

func (v *worldVolumes) Unmount(context.Context, types.UID) error {
	(*world)(v).note("unmount")
	return nil
}

func (s *worldStatuses) Report(_ *v1.Pod, _ *observed.Status, waits map[string]reason.Wait) v1.PodStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits, s.reported = maps.Clone(waits), s.progress
	return v1.PodStatus{Phase: s.phase, Reason: s.why, Message: s.why, Conditions: s.conditions}
}

func (s *worldStatuses) SetProgress(_ types.UID, progress *allocation.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = progress
}

func (c *worldCgroups) Ensure(pod *v1.Pod) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit := podfiles.Containers(pod)[0].Resources.Limits.Memory(); !limit.IsZero() {
		c.log = append(c.log, "cgroup "+limit.String())
	}
	return "/kubepods/pod" + string(pod.UID), nil
}

func (c *worldCgroups) End(context.Context, types.UID) error {
	(*world)(c).note("remove cgroup")
	return nil
}

func (o *worldObjects) GetConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m := o.maps[name]; m != nil {
		return m, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (o *worldObjects) GetSecret(_ context.Context, _, name string) (*v1.Secret, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.secrets[name]; s != nil {
		return s, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (o *worldObjects) GetRuntimeClass(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asked != nil {
		defer o.asked()
	}
	if handler, ok := o.classes[name]; ok {
		return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: "node.k8s.io", Resource: "runtimeclass"}, name)
}

func (w *world) main() *v1.Container { return &w.pod.Spec.Containers[0] }

func (w *world) inspect() *observed.Status {
	w.t.Helper()
	status, err := w.runtime.Inspect(w.t.Context(), w.pod.UID)
	if err != nil {
		w.t.Fatal(err)
	}
	return status
}

// sync makes one step and returns its error.
func (w *world) sync() error {
	w.t.Helper()
	_, err := w.SyncPod(w.t.Context(), w.pod, nil, w.inspect())
	return err
}

func (w *world) mustSync() {
	w.t.Helper()
	if err := w.sync(); err != nil {
		w.t.Fatal(err)
	}
}

// running returns the names of the running containers, sorted.
func (w *world) running() string {
	w.t.Helper()
	var out []string
	for _, c := range w.inspect().Containers {
		if c.State == observed.Running {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (w *world) wantRunning(want string) {
	w.t.Helper()
	if got := w.running(); got != want {
		w.t.Errorf("running: got %q, want %q", got, want)
	}
}

// only returns the one container called name, which has to be the newest.
func (w *world) newest(name string) *observed.ContainerStatus {
	w.t.Helper()
	c := w.inspect().Container(name)
	if c == nil {
		w.t.Fatalf("no container %s", name)
	}
	return c
}

// eventsSoFar returns the events since the last call.
func (w *world) eventsSoFar() []string {
	var out []string
	for {
		select {
		case e := <-w.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func (w *world) wantEvents(want ...string) {
	w.t.Helper()
	got := w.eventsSoFar()
	for _, e := range want {
		if !slices.Contains(got, e) {
			w.t.Errorf("no event %q in:\n%s", e, strings.Join(got, "\n"))
		}
	}
}

func (w *world) wantWait(name, reason, message string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.waits[name]
	if got.Reason != reason || !strings.Contains(got.Message, message) {
		w.t.Errorf("%s waits with %q %q, want %q %q", name, got.Reason, got.Message, reason, message)
	}
}

// wantRetry checks that RetryAt asks for another look about d from now.
func (w *world) wantRetry(d time.Duration) {
	w.t.Helper()
	at, ok := w.RetryAt(w.pod.UID)
	if left := time.Until(at); !ok || left > d || left < d/2 {
		w.t.Errorf("to be looked at in %v (%v), want %v", left, ok, d)
	}
}
