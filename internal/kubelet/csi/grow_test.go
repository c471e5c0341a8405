package csi_test

import (
	"errors"
	"path/filepath"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/test/csidriver"
)

const larger = 2 << 30

// grown is a volume that is to grow.
func grown(pod string) *podvolumes.Volume {
	v := persistent(pod, "pv")
	v.GrowTo = larger
	return v
}

func (w *world) grow(v *podvolumes.Volume) {
	w.t.Helper()
	if err := w.host.Grow(w.t.Context(), v); err != nil {
		w.t.Fatal(err)
	}
}

// A volume grows while its pod has it, or when it is staged, which is the only time
// for some drivers.
func TestGrow(t *testing.T) {
	offline := func(c *csidriver.Config) { c.Offline = true }
	noStaging := func(c *csidriver.Config) { c.Lacks = rpc(spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) }
	const stage, publish, expand = "stage handle-of-pv", "publish handle-of-pv", "expand handle-of-pv"
	tests := []struct {
		name   string
		driver func(*csidriver.Config)
		before bool // the pod has the volume
		calls  []string
		err    error
	}{
		{"while the pod has it", nil, true, []string{expand}, nil},
		{"before the pod has it", nil, false, []string{stage, expand, publish}, nil},
		{"offline, before the pod has it", offline, false, []string{stage, expand, publish}, nil},
		{"offline, while the pod has it", offline, true, []string{expand}, podvolumes.ErrGrowsLater},
		{"without staging", noStaging, false, []string{publish, expand}, nil},
		{"by the controller alone", func(c *csidriver.Config) { c.Lacks = rpc(spec.NodeServiceCapability_RPC_EXPAND_VOLUME) }, false, []string{stage, publish}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := start(t, tt.driver)
			v := grown("a")
			if tt.before {
				w.setUp(persistent("a", "pv"))
				w.driver.Forget()
			}
			w.setUp(v)
			err := w.host.Grow(t.Context(), v)
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			w.wantCalls(tt.calls...)
			if tt.err != nil {
				// It grows when the next pod gets it.
				w.tearDown(v)
				w.driver.Forget()
				w.setUp(v)
				w.grow(v)
				w.wantCalls(stage, expand, publish)
			}
			want := int64(larger)
			if tt.name == "by the controller alone" {
				want = 0
			}
			if got := w.driver.Size("handle-of-pv"); got != want {
				t.Errorf("it has %d bytes, want %d", got, want)
			}
			w.tearDown(v)
			w.wantNothing()
		})
	}
}

// What a driver is told, and nothing of the secret is kept.
func TestGrowRequest(t *testing.T) {
	w := start(t, nil)
	w.api.secrets = map[string]map[string][]byte{"s/expand": {"key": []byte("hush")}}
	v := grown("a")
	v.CSI.ExpandSecret = &v1.SecretReference{Namespace: "s", Name: "expand"}
	v.MountOptions = []string{"noatime"}
	v.CSI.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	w.setUp(persistent("a", "pv"))
	w.grow(v)
	got := w.driver.Calls("NodeExpandVolume")[0].Request.(*spec.NodeExpandVolumeRequest)
	want := &spec.NodeExpandVolumeRequest{
		VolumeId: "handle-of-pv", VolumePath: filepath.Join(w.dir, "pods/a/volumes/kubernetes.io~csi/pv/mount"), StagingTargetPath: w.staging("pv"),
		CapacityRange: &spec.CapacityRange{RequiredBytes: larger}, Secrets: map[string]string{"key": "hush"},
		VolumeCapability: &spec.VolumeCapability{
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
			AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{FsType: "ext4", MountFlags: []string{"noatime"}}},
		},
	}
	if diff := cmp.Diff(got, want, protocmp.Transform()); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	v.CSI.ExpandSecret.Name = "other"
	if err := w.host.Grow(t.Context(), v); !errors.Is(err, podvolumes.ErrWaiting) {
		t.Errorf("error %v does not wait for the secret", err)
	}
}

// What a driver's refusal means, and whether the pod gets its volume meanwhile.
func TestGrowRefused(t *testing.T) {
	for code, want := range map[codes.Code]error{
		codes.InvalidArgument:    podvolumes.ErrCannotGrow,
		codes.OutOfRange:         podvolumes.ErrCannotGrow,
		codes.NotFound:           podvolumes.ErrCannotGrow,
		codes.FailedPrecondition: podvolumes.ErrGrowsLater,
		codes.Internal:           nil,
		codes.Unavailable:        nil,
	} {
		t.Run(code.String(), func(t *testing.T) {
			w := start(t, nil)
			v := grown("a")
			refused := status.Error(code, "no")
			w.driver.Fail("NodeExpandVolume", 2, refused)
			_, err := w.host.SetUp(t.Context(), v)
			if want == nil {
				wantErr(t, err, "NodeExpandVolume: no")
				w.wantCalls("stage handle-of-pv", "expand handle-of-pv")
			} else if err != nil {
				t.Errorf("the pod does not get its volume: %v", err)
			}
			err = w.host.Grow(t.Context(), v)
			wantErr(t, err, "NodeExpandVolume: no")
			for _, mean := range []error{podvolumes.ErrCannotGrow, podvolumes.ErrGrowsLater} {
				if got := errors.Is(err, mean); got != errors.Is(want, mean) {
					t.Errorf("is %q: %v", mean, got)
				}
			}
			w.setUp(v)
			w.grow(v)
			if got := w.driver.Size("handle-of-pv"); got != larger {
				t.Errorf("it has %d bytes", got)
			}
		})
	}
	w := start(t, nil)
	v := grown("a")
	w.setUp(v)
	w.host.Deregister(driverName, w.driver.Endpoint())
	wantErr(t, w.host.Grow(t.Context(), v), "is not registered on this node")
}
