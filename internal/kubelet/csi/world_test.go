package csi_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/csi"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumeplugin"
	"github.com/holdfast-dev/holdfast/test/csidriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const driverName = "disks.example.com"

// api is what the API has. Missing objects are not found.
type api struct {
	mu          sync.Mutex
	down        error
	drivers     map[string]*storagev1.CSIDriver
	attachments map[string]*storagev1.VolumeAttachment
	secrets     map[string]map[string][]byte // by namespace/name
	tokens      []*authenticationv1.TokenRequest
}

func find[T any](a *api, objects map[string]T, resource, name string) (T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	object, ok := objects[name]
	if a.down != nil {
		return object, a.down
	}
	if !ok {
		return object, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
	}
	return object, nil
}

func (a *api) GetCSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	return find(a, a.drivers, "csidrivers", name)
}

func (a *api) GetVolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return find(a, a.attachments, "volumeattachments", name)
}

func (a *api) GetSecret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	data, err := find(a, a.secrets, "secrets", namespace+"/"+name)
	return &v1.Secret{Data: data}, err
}

func (a *api) Token(_ context.Context, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens = append(a.tokens, request)
	answer := request.DeepCopy()
	answer.Status.Token = "token of " + namespace + "/" + account + " for " + strings.Join(request.Spec.Audiences, ",")
	return answer, nil
}

// set has the API hold the driver's CSIDriver.
func (a *api) set(change func(*storagev1.CSIDriverSpec)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	object := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
		AttachRequired:       new(false),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
		PodInfoOnMount:       new(true),
	}}
	if change != nil {
		change(&object.Spec)
	}
	a.drivers = map[string]*storagev1.CSIDriver{driverName: object}
}

type world struct {
	t        *testing.T
	dir      string
	api      *api
	host     *csi.Host
	driver   *csidriver.Driver
	groups   []string // paths given to a group
	groupErr error
	metrics  prometheus.Registerer
	changed  int // how often it was told that drivers are others
}

// start makes a node with a driver, whose CSIDriver says that volumes need not
// be attached.
func start(t *testing.T, change func(*csidriver.Config)) *world {
	t.Helper()
	cfg := csidriver.Config{Name: driverName, Dir: t.TempDir()}
	if change != nil {
		change(&cfg)
	}
	w := &world{t: t, dir: t.TempDir(), api: &api{}, driver: csidriver.New(cfg)}
	w.api.set(nil)
	w.driver.Serve(t)
	w.restart()
	t.Cleanup(func() {
		if broken := w.driver.Broken(); len(broken) > 0 {
			t.Errorf("rules were broken: %q", broken)
		}
	})
	return w
}

// restart is what is there after the agent has been started again.
func (w *world) restart() {
	w.t.Helper()
	w.host = csi.New(csi.Config{
		Dir: w.dir, Node: "n1", Objects: w.api, Log: slog.New(slog.DiscardHandler), Timeout: time.Minute, Metrics: w.metrics,
		Changed: func() { w.changed++ },
		Unmap:   volumeplugin.New(volumeplugin.Config{Dir: w.dir, Log: slog.New(slog.DiscardHandler)}).Unmap,
		SetGroup: func(_ context.Context, path string, v *podvolumes.Volume) error {
			if w.groupErr != nil {
				return w.groupErr
			}
			w.groups = append(w.groups, fmt.Sprint(path, " ", *v.FSGroup))
			return nil
		},
	})
	if err := w.host.Register(w.t.Context(), driverName, w.driver.Endpoint(), []string{"1.0.0"}); err != nil {
		w.t.Fatal(err)
	}
	w.driver.Forget()
}

// persistent is a volume of a PersistentVolume that a pod uses.
func persistent(pod, pv string) *podvolumes.Volume {
	return &podvolumes.Volume{
		ID: podvolumes.ID{Kind: podvolumes.CSI, Dir: pv}, Name: "data", PodUID: types.UID(pod), Pod: types.NamespacedName{Namespace: "ns", Name: "pod-" + pod},
		CSI: &podvolumes.CSIAttributes{
			Driver: driverName, Handle: "handle-of-" + pv, FSType: "ext4",
			AccessModes:    []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			ServiceAccount: "account",
		},
	}
}

// raw is a device of a PersistentVolume that a pod uses.
func raw(pod, pv string) *podvolumes.Volume {
	v := persistent(pod, pv)
	v.Block = true
	return v
}

// inline is a volume that is written into a pod.
func inline(pod, name string) *podvolumes.Volume {
	v := persistent(pod, name)
	v.Name = name
	v.CSI.Handle, v.CSI.Ephemeral, v.CSI.AccessModes = "csi-of-"+pod+name, true, nil
	return v
}

func (w *world) setUp(v *podvolumes.Volume) string {
	w.t.Helper()
	path, err := w.host.SetUp(w.t.Context(), v)
	if err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) tearDown(v *podvolumes.Volume) {
	w.t.Helper()
	if err := w.host.TearDown(w.t.Context(), v.PodUID, v.ID); err != nil {
		w.t.Fatal(err)
	}
}

// wantCalls compares the driver's calls that change something, since the last time.
func (w *world) wantCalls(want ...string) {
	w.t.Helper()
	got := []string{}
	for _, c := range w.driver.Calls("NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeExpandVolume") {
		name := strings.TrimSuffix(strings.TrimPrefix(c.Name, "Node"), "Volume")
		got = append(got, strings.ToLower(name)+" "+c.Request.(interface{ GetVolumeId() string }).GetVolumeId())
	}
	w.driver.Forget()
	if !slices.Equal(got, want) {
		w.t.Errorf("calls %q, want %q", got, want)
	}
}

// wantNothing checks that nothing is left anywhere.
func (w *world) wantNothing() {
	w.t.Helper()
	if left := w.driver.Left(); len(left) > 0 {
		w.t.Errorf("the driver still has %q", left)
	}
	err := filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		_, device, _ := strings.Cut(path, "/csi/volumeDevices/")
		if !entry.IsDir() || strings.HasSuffix(path, "mount") || device != "" && device != "staging" && device != "publish" {
			w.t.Errorf("left: %s", path)
		}
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
}

// files returns the content of all files of the node, by path.
func (w *world) files() map[string]string {
	w.t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, w.dir+"/")] = string(data)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return files
}

// wantErr checks an error's text.
func wantErr(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

var errTrouble = errors.New("trouble")

func rpc(kinds ...spec.NodeServiceCapability_RPC_Type) []spec.NodeServiceCapability_RPC_Type {
	return kinds
}
