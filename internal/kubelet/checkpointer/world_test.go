package checkpointer

import (
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk is a folder in memory.
type disk struct {
	mu     sync.Mutex
	files  map[string]checkpointfile.File
	log    []string // writes and removals, in order
	check  error
	failed error // of writes
}

func (d *disk) Check() error { d.mu.Lock(); defer d.mu.Unlock(); return d.check }

func (d *disk) Files() ([]checkpointfile.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var files []checkpointfile.File
	for _, f := range d.files {
		files = append(files, f)
	}
	return files, nil
}

func (d *disk) Read(key checkpointfile.Key) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.files[key.File()]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return f.Object, f.Err
}

func (d *disk) Write(key checkpointfile.Key, object []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil {
		return d.failed
	}
	d.files[key.File()] = checkpointfile.File{Name: key.File(), Key: key, Object: object}
	d.log = append(d.log, "write "+key.String())
	return nil
}

func (d *disk) Remove(file string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[file]
	delete(d.files, file)
	d.log = append(d.log, "remove "+f.Key.String())
	return nil
}

// damage makes a file unreadable.
func (d *disk) damage(key checkpointfile.Key, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[key.File()] = checkpointfile.File{Name: key.File(), Key: key, Err: err}
}

// changes returns what was written and removed since the last call.
func (d *disk) changes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	log := d.log
	d.log = nil
	return log
}

// A world is what a checkpointer reads. Its fields are guarded by the lock.
type world struct {
	t    *testing.T
	disk *disk

	mu       sync.Mutex
	pods     []*v1.Pod
	seen     bool
	objects  map[podvolumes.Ref]runtime.Object
	tokens   map[checkpointfile.Key]*authenticationv1.TokenRequest
	services map[string][]*v1.Service
	edition  int64
	runs     map[types.UID]bool
	node     *v1.Node
	answered time.Time
}

func newWorld(t *testing.T) *world {
	return &world{t: t, disk: &disk{files: map[string]checkpointfile.File{}}}
}

func (w *world) Seen() map[podvolumes.Ref]runtime.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.objects
}

func (w *world) Tokens() map[checkpointfile.Key]*authenticationv1.TokenRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tokens
}

func (w *world) SeenServices(namespace string) ([]*v1.Service, int64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.services[namespace], w.edition, w.services != nil
}

// agent returns a checkpointer that does not run.
func (w *world) agent(change ...func(*Config)) *Checkpointer {
	cfg := Config{
		Folder: w.disk, Objects: w,
		Pods:     func() ([]*v1.Pod, bool) { w.mu.Lock(); defer w.mu.Unlock(); return w.pods, w.seen },
		Runs:     func(uid types.UID) bool { w.mu.Lock(); defer w.mu.Unlock(); return w.runs[uid] },
		Listed:   func() bool { return true },
		Node:     func() *v1.Node { w.mu.Lock(); defer w.mu.Unlock(); return w.node },
		Answered: func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.answered },
		Log:      slog.New(slog.NewTextHandler(w.t.Output(), nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	return New(cfg)
}

// set changes the world.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// boot forgets everything but the disk, as a reboot without the API does.
func (w *world) boot() {
	w.set(func() {
		w.pods, w.seen, w.objects, w.tokens, w.services, w.node, w.answered, w.runs = nil, false, nil, nil, nil, nil, time.Time{}, nil
	})
	w.disk.changes()
}

func pod(name string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid"), ResourceVersion: "7", Generation: 3},
		Spec: v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "i", EnvFrom: []v1.EnvFromSource{
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}},
		}}}},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

var (
	configMapRef = podvolumes.Ref{Kind: podvolumes.RefConfigMap, Namespace: "default", Name: "cm"}
	secretRef    = podvolumes.Ref{Kind: podvolumes.RefSecret, Namespace: "default", Name: "s"}
	claimRef     = podvolumes.Ref{Kind: podvolumes.RefClaim, Namespace: "default", Name: "data"}
	pvRef        = podvolumes.Ref{Kind: podvolumes.RefPersistentVolume, Name: "pv"}
)

func configMap(value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cm"}, Data: map[string]string{"k": value}}
}

func secret(value string) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"k": []byte(value)}}
}

func tokenRequest(uid string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", UID: types.UID(uid)},
	}}
}

func tokenOf(uid, value string) *authenticationv1.TokenRequest {
	token := tokenRequest(uid)
	token.Status.Token = value
	return token
}

// online makes the API answer, with this pod and all that it uses.
func (w *world) online(pods ...*v1.Pod) {
	w.set(func() {
		w.pods, w.seen, w.answered = pods, true, time.Now()
		w.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "z"}}}
		w.objects = map[podvolumes.Ref]runtime.Object{configMapRef: configMap("1"), secretRef: secret("1")}
		w.services = map[string][]*v1.Service{"default": {{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1"}}}}
		w.tokens = map[checkpointfile.Key]*authenticationv1.TokenRequest{}
		for _, p := range pods {
			w.tokens[checkpointfile.TokenKey("default", "default", tokenRequest(string(p.UID)))] = tokenOf(string(p.UID), "token of "+p.Name)
		}
	})
}

// look has a checkpointer look once, and returns what it changed on the disk.
func (w *world) look(c *Checkpointer) []string {
	w.t.Helper()
	c.look()
	if err := c.mu.failure.err; err != nil {
		w.t.Errorf("look: %v", err)
	}
	return w.disk.changes()
}

// faults writes the faults of a checkpointer as `object: message`.
func faults(c *Checkpointer) []string {
	var lines []string
	for _, f := range c.Faults() {
		lines = append(lines, f.Object+": "+f.Message)
	}
	slices.Sort(lines)
	return lines
}

func names(pods []*v1.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

var errFull = errors.New("no space left on device")
