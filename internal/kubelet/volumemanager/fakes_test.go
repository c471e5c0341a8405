package volumemanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk is a machine in memory: it makes volumes, keeps them over a restart of
// the manager, and fails or hangs where told to.
type disk struct {
	mu      sync.Mutex
	volumes map[string]string // path → content
	parts   map[string]bool   // bound subPaths
	pods    map[types.UID]bool
	log     []string
	fail    map[string]error         // by operation and volume, such as "setUp data"
	hang    map[string]chan struct{} // the same; the operation ends when it is closed
	working map[types.UID]int        // operations under way
	peak    int                      // most pods ever worked on at once
}

func newDisk() *disk {
	return &disk{volumes: map[string]string{}, parts: map[string]bool{}, pods: map[types.UID]bool{}, fail: map[string]error{}, hang: map[string]chan struct{}{}, working: map[types.UID]int{}}
}

// begin notes an operation, and fails or hangs it.
func (d *disk) begin(op string, uid types.UID, name string) (end func(), err error) {
	key := strings.TrimSpace(op + " " + name)
	d.mu.Lock()
	d.log = append(d.log, strings.TrimSpace(fmt.Sprintf("%s %s %s", op, uid, name)))
	if d.working[uid]++; d.working[uid] > 1 {
		d.log = append(d.log, fmt.Sprintf("TWO OPERATIONS AT ONCE ON %s", uid))
	}
	d.peak = max(d.peak, len(d.working))
	hang, err := d.hang[key], d.fail[key]
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	d.mu.Lock()
	return func() {
		if d.working[uid]--; d.working[uid] == 0 {
			delete(d.working, uid)
		}
		d.mu.Unlock()
	}, err
}

func path(uid types.UID, id podvolumes.ID) string {
	return fmt.Sprintf("/pods/%s/%s/%s", uid, id.Kind, id.Dir)
}

func (d *disk) SetUp(ctx context.Context, v *podvolumes.Volume) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	end, err := d.begin("setUp", v.PodUID, v.Name)
	defer end()
	d.pods[v.PodUID] = true
	if err != nil {
		return "", err
	}
	var content []string
	for _, name := range slices.Sorted(maps.Keys(v.Files)) {
		content = append(content, name+"="+string(v.Files[name].Data))
	}
	p := path(v.PodUID, v.ID)
	d.volumes[p] = strings.Join(content, " ")
	return p, nil
}

func (d *disk) TearDown(_ context.Context, uid types.UID, id podvolumes.ID) error {
	end, err := d.begin("tearDown", uid, id.Dir)
	defer end()
	if err == nil {
		delete(d.volumes, path(uid, id))
	}
	return err
}

func (d *disk) Grow(_ context.Context, v *podvolumes.Volume) error {
	end, err := d.begin("grow", v.PodUID, v.Name)
	defer end()
	d.log[len(d.log)-1] += fmt.Sprint(" ", v.GrowTo)
	return err
}

func (d *disk) BindSubPath(_ context.Context, s podvolumes.SubPath) (string, error) {
	end, err := d.begin("bindSubPath", s.PodUID, s.Path)
	defer end()
	p := fmt.Sprintf("/pods/%s/parts/%s/%s/%d", s.PodUID, s.Volume, s.Container, s.Index)
	d.parts[p] = err == nil
	return p, err
}

func (d *disk) CleanSubPaths(_ context.Context, uid types.UID) error {
	end, err := d.begin("cleanSubPaths", uid, "")
	defer end()
	if err == nil {
		maps.DeleteFunc(d.parts, func(p string, _ bool) bool { return strings.HasPrefix(p, "/pods/"+string(uid)+"/") })
	}
	return err
}

func (d *disk) Found(context.Context) ([]podvolumes.Found, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []podvolumes.Found
	for p := range d.volumes {
		parts := strings.Split(p, "/")
		id := podvolumes.ID{Kind: podvolumes.Kind(parts[3]), Dir: parts[4]}
		name, pv := id.Dir, ""
		if id.Kind == podvolumes.Local {
			name, pv = "disk", id.Dir
		}
		found = append(found, podvolumes.Found{PodUID: types.UID(parts[2]), ID: id, Path: p, Name: name, Complete: id.Kind.Outlasts(), PV: pv})
	}
	return found, nil
}

func (d *disk) Pods(context.Context) ([]types.UID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.pods)), nil
}

func (d *disk) RemovePod(_ context.Context, uid types.UID) error {
	end, err := d.begin("removePod", uid, "")
	defer end()
	for p := range d.volumes {
		if strings.HasPrefix(p, "/pods/"+string(uid)+"/") {
			err = errors.Join(err, fmt.Errorf("%s is still mounted", p))
		}
	}
	if err == nil {
		delete(d.pods, uid)
	}
	return err
}

// steps returns and forgets what was done.
func (d *disk) steps() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	steps := d.log
	d.log = nil
	return steps
}

func (d *disk) setFail(op string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail[op] = err
}

func (d *disk) content(uid types.UID, id podvolumes.ID) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.volumes[path(uid, id)]
}

// api holds ConfigMaps by name, and who holds what.
type api struct {
	mu     sync.Mutex
	values map[string]string
	down   error
	held   map[types.UID]bool
	tell   func(types.UID)
	modes  []v1.PersistentVolumeAccessMode // of the PersistentVolume
	size   v1.ResourceList                 // of the PersistentVolume
	shown  v1.ResourceList                 // size that its claim shows
}

func (a *api) Hold(pod *v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[pod.UID] = true
}

func (a *api) Release(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.held, uid)
}

// set changes a ConfigMap, removes it if value is "", and tells its holders.
func (a *api) set(name, value string) {
	a.setQuietly(name, value)
	a.mu.Lock()
	held := slices.Collect(maps.Keys(a.held))
	a.mu.Unlock()
	for _, uid := range held {
		a.tell(uid)
	}
}

// setQuietly changes a ConfigMap and tells nobody.
func (a *api) setQuietly(name, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.values[name] = value
	if value == "" {
		delete(a.values, name)
	}
}

func (a *api) setDown(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = err
}

// setSizes sets those of the PersistentVolume and of what its claim shows.
func (a *api) setSizes(size, shown string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.size = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
	a.shown = v1.ResourceList{v1.ResourceStorage: resource.MustParse(shown)}
}

func (a *api) GetConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	value, ok := a.values[name]
	switch {
	case a.down != nil:
		return nil, a.down
	case !ok:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return &v1.ConfigMap{Data: map[string]string{"k": value}}, nil
}

func (a *api) GetSecret(_ context.Context, _, name string) (*v1.Secret, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (a *api) GetClaim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down != nil {
		return nil, a.down
	}
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "claim"}}
	claim.Spec.VolumeName, claim.Status.Phase, claim.Status.Capacity = "pv", v1.ClaimBound, a.shown
	claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
	return claim, nil
}

func (a *api) setModes(modes ...v1.PersistentVolumeAccessMode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.modes = modes
}

func (a *api) GetPersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.AccessModes, pv.Spec.Capacity = a.modes, a.size
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: "claim"}
	pv.Spec.Local = &v1.LocalVolumeSource{Path: "/disk"}
	return pv, nil
}

func (a *api) Token(context.Context, string, string, *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return nil, errors.New("no tokens here")
}

// world is a Manager with its machine and its API, in fake time.
type world struct {
	*Manager
	t    *testing.T
	disk *disk
	api  *api
	stop func() error // ends Run
}

// run runs body with a running Manager on a machine.
func run(t *testing.T, d *disk, body func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, disk: d, api: &api{values: map[string]string{}, held: map[types.UID]bool{}}}
		w.start()
		body(t, w)
		if w.stop != nil {
			if err := w.stop(); err != nil {
				t.Error(err)
			}
		}
		for _, step := range d.steps() {
			if strings.HasPrefix(step, "TWO") {
				t.Error(step)
			}
		}
	})
}

func (w *world) start() {
	w.Manager = New(Config{
		Log: slog.New(slog.DiscardHandler), Mounts: w.disk, Grower: w.disk, SubPaths: w.disk, Folders: w.disk, Holder: w.api, Objects: w.api, Parallel: 2,
	})
	w.api.tell = w.Poke
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.stop = func() error {
		cancel()
		w.stop = nil
		return <-done
	}
	synctest.Wait()
}

// restart ends the manager and starts another on the same machine.
func (w *world) restart() {
	w.t.Helper()
	if err := w.stop(); err != nil {
		w.t.Error(err)
	}
	w.api.held = map[types.UID]bool{}
	w.start()
}

func podOf(uid types.UID, volumes ...v1.Volume) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + string(uid), UID: uid}, Spec: v1.PodSpec{Volumes: volumes}}
}

func emptyDir(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
}

func configMap(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}}}
}

func claim(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}
}

func label(name string) v1.Volume {
	source := &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{{Path: "l", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels['l']"}}}}
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DownwardAPI: source}}
}
