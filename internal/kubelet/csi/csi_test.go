package csi_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/csi"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/test/csidriver"
)

// A volume is staged once for all pods of the node, and unstaged after the last.
func TestLife(t *testing.T) {
	w := start(t, nil)
	a, b, other := persistent("a", "pv"), persistent("b", "pv"), persistent("a", "pv2")
	if got, want := w.setUp(a), filepath.Join(w.dir, "pods/a/volumes/kubernetes.io~csi/pv/mount"); got != want {
		t.Errorf("it is at %s, want %s", got, want)
	}
	w.wantCalls("stage handle-of-pv", "publish handle-of-pv")
	w.setUp(b)
	w.setUp(other)
	w.wantCalls("publish handle-of-pv", "stage handle-of-pv2", "publish handle-of-pv2")
	w.setUp(a)
	w.setUp(b)
	w.wantCalls()
	w.tearDown(a)
	w.wantCalls("unpublish handle-of-pv")
	w.tearDown(other)
	w.wantCalls("unpublish handle-of-pv2", "unstage handle-of-pv2")
	w.restart()
	w.tearDown(b)
	w.wantCalls("unpublish handle-of-pv", "unstage handle-of-pv")
	w.tearDown(b)
	w.wantCalls()
	w.wantNothing()
}

// Files are upstream's to the byte, and hold no secret.
func TestRecords(t *testing.T) {
	w := start(t, nil)
	w.api.secrets = map[string]map[string][]byte{"s/stage": {"key": []byte("hush")}, "s/publish": {"key": []byte("hush")}}
	v := persistent("a", "pv")
	v.CSI.StageSecret, v.CSI.PublishSecret = &v1.SecretReference{Namespace: "s", Name: "stage"}, &v1.SecretReference{Namespace: "s", Name: "publish"}
	w.setUp(v)
	w.setUp(inline("a", "scratch"))
	for _, c := range w.driver.Calls("NodeStageVolume", "NodePublishVolume") {
		if secrets := c.Request.(interface{ GetSecrets() map[string]string }).GetSecrets(); strings.Contains(c.Request.(interface{ GetVolumeId() string }).GetVolumeId(), "pv") != (secrets["key"] == "hush") {
			t.Errorf("%s: secrets %v", c.Name, secrets)
		}
	}
	attachment := podvolumes.CSIAttachment("handle-of-pv", driverName, "n1")
	got := w.files()
	want := map[string]string{
		"plugins/kubernetes.io/csi/disks.example.com/" + podvolumes.StagedCSI("handle-of-pv") + "/vol_data.json": `{"volumeHandle":"handle-of-pv","driverName":"disks.example.com"}` + "\n",
		"pods/a/volumes/kubernetes.io~csi/pv/vol_data.json":                                                      `{"specVolID":"pv","volumeHandle":"handle-of-pv","driverName":"disks.example.com","nodeName":"n1","attachmentID":"` + attachment + `","volumeLifecycleMode":"Persistent"}` + "\n",
		"pods/a/plugins/kubernetes.io~csi/pv/ready":                                                              "data",
		"pods/a/volumes/kubernetes.io~csi/scratch/vol_data.json":                                                 `{"specVolID":"scratch","volumeHandle":"csi-of-ascratch","driverName":"disks.example.com","nodeName":"n1","attachmentID":"` + podvolumes.CSIAttachment("csi-of-ascratch", driverName, "n1") + `","volumeLifecycleMode":"Ephemeral"}` + "\n",
		"pods/a/plugins/kubernetes.io~csi/scratch/ready":                                                         "scratch",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("files (-got +want):\n%s", diff)
	}
}

// What the driver is told.
func TestRequests(t *testing.T) {
	mount := func(mode spec.VolumeCapability_AccessMode_Mode, m *spec.VolumeCapability_MountVolume) *spec.VolumeCapability {
		return &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: mode}, AccessType: &spec.VolumeCapability_Mount{Mount: m}}
	}
	info := map[string]string{
		"csi.storage.k8s.io/pod.name": "pod-a", "csi.storage.k8s.io/pod.namespace": "ns", "csi.storage.k8s.io/pod.uid": "a",
		"csi.storage.k8s.io/serviceAccount.name": "account", "csi.storage.k8s.io/ephemeral": "false",
	}
	with := func(base map[string]string, pairs ...string) map[string]string {
		out := map[string]string{}
		maps.Copy(out, base)
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	tests := []struct {
		name     string
		driver   func(*csidriver.Config)
		object   func(*storagev1.CSIDriverSpec)
		volume   func(*podvolumes.Volume)
		want     *spec.NodePublishVolumeRequest // but for paths and the volume's name
		wantings []string                       // given to a group
	}{
		{
			"plain", nil, func(s *storagev1.CSIDriverSpec) { s.PodInfoOnMount = nil }, nil,
			&spec.NodePublishVolumeRequest{VolumeCapability: mount(spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, &spec.VolumeCapability_MountVolume{FsType: "ext4"})}, nil,
		}, {
			"read-only, with options and attributes", nil, nil,
			func(v *podvolumes.Volume) {
				v.ReadOnly, v.MountOptions, v.CSI.Context = true, []string{"noatime"}, map[string]string{"pool": "fast"}
				v.CSI.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany}
			},
			&spec.NodePublishVolumeRequest{
				Readonly: true, VolumeContext: with(info, "pool", "fast"),
				VolumeCapability: mount(spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, &spec.VolumeCapability_MountVolume{FsType: "ext4", MountFlags: []string{"noatime"}}),
			}, nil,
		}, {
			"the first mode counts", nil, nil,
			func(v *podvolumes.Volume) {
				v.CSI.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany, v1.ReadWriteOnce}
			},
			&spec.NodePublishVolumeRequest{VolumeContext: info, VolumeCapability: mount(spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, &spec.VolumeCapability_MountVolume{FsType: "ext4"})}, nil,
		}, {
			"one pod, for a driver that cannot tell", nil, nil,
			func(v *podvolumes.Volume) {
				v.CSI.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
			},
			&spec.NodePublishVolumeRequest{VolumeContext: info, VolumeCapability: mount(spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, &spec.VolumeCapability_MountVolume{FsType: "ext4"})}, nil,
		}, {
			"one pod", func(c *csidriver.Config) { c.Also = rpc(spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER) }, nil,
			func(v *podvolumes.Volume) {
				v.CSI.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
			},
			&spec.NodePublishVolumeRequest{VolumeContext: info, VolumeCapability: mount(spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, &spec.VolumeCapability_MountVolume{FsType: "ext4"})}, nil,
		}, {
			"several pods of one node", func(c *csidriver.Config) { c.Also = rpc(spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER) }, nil, nil,
			&spec.NodePublishVolumeRequest{VolumeContext: info, VolumeCapability: mount(spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, &spec.VolumeCapability_MountVolume{FsType: "ext4"})}, nil,
		}, {
			"a group that the driver gives it to", func(c *csidriver.Config) { c.Also = rpc(spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) }, nil,
			func(v *podvolumes.Volume) { v.FSGroup = new(int64(2000)) },
			&spec.NodePublishVolumeRequest{VolumeContext: info, VolumeCapability: mount(spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, &spec.VolumeCapability_MountVolume{FsType: "ext4", VolumeMountGroup: "2000"})}, nil,
		}, {
			"a group that we give it to", nil, nil,
			func(v *podvolumes.Volume) { v.FSGroup = new(int64(2000)) },
			&spec.NodePublishVolumeRequest{VolumeContext: info, VolumeCapability: mount(spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, &spec.VolumeCapability_MountVolume{FsType: "ext4"})},
			[]string{"2000"},
		}, {
			"tokens", nil, func(s *storagev1.CSIDriverSpec) {
				s.PodInfoOnMount, s.TokenRequests = nil, []storagev1.TokenRequest{{Audience: "vault"}, {}}
			}, nil,
			&spec.NodePublishVolumeRequest{
				VolumeContext:    map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": `{"":{"token":"token of ns/account for ","expirationTimestamp":null},"vault":{"token":"token of ns/account for vault","expirationTimestamp":null}}`},
				VolumeCapability: mount(spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, &spec.VolumeCapability_MountVolume{FsType: "ext4"}),
			}, nil,
		}, {
			"tokens among the secrets", nil, func(s *storagev1.CSIDriverSpec) {
				s.PodInfoOnMount, s.TokenRequests, s.ServiceAccountTokenInSecrets = nil, []storagev1.TokenRequest{{Audience: "vault"}}, new(true)
			}, nil,
			&spec.NodePublishVolumeRequest{
				Secrets:          map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": `{"vault":{"token":"token of ns/account for vault","expirationTimestamp":null}}`},
				VolumeCapability: mount(spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, &spec.VolumeCapability_MountVolume{FsType: "ext4"}),
			}, nil,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := start(t, tt.driver)
			w.api.set(tt.object)
			v := persistent("a", "pv")
			if tt.volume != nil {
				tt.volume(v)
			}
			before := cmp.Diff(v.CSI.Context, map[string]string(nil))
			target := w.setUp(v)
			if after := cmp.Diff(v.CSI.Context, map[string]string(nil)); before != after {
				t.Errorf("the volume's own attributes were changed: %s", after)
			}
			got := w.driver.Calls("NodePublishVolume")[0].Request.(*spec.NodePublishVolumeRequest)
			tt.want.VolumeId, tt.want.TargetPath = "handle-of-pv", target
			tt.want.StagingTargetPath = filepath.Join(w.dir, "plugins/kubernetes.io/csi", driverName, podvolumes.StagedCSI("handle-of-pv"), "globalmount")
			if diff := cmp.Diff(got, tt.want, protocmp.Transform()); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
			var given []string
			for _, group := range w.groups {
				given = append(given, strings.TrimPrefix(group, target+" "))
			}
			if diff := cmp.Diff(given, tt.wantings); diff != "" {
				t.Errorf("given to groups (-got +want):\n%s", diff)
			}
		})
	}
}

// A driver that does not stage is not asked to, and upstream's rules say who may
// have a volume written into a pod.
func TestModes(t *testing.T) {
	t.Run("no staging", func(t *testing.T) {
		w := start(t, func(c *csidriver.Config) { c.Lacks = rpc(spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) })
		w.setUp(persistent("a", "pv"))
		w.tearDown(persistent("a", "pv"))
		w.wantCalls("publish handle-of-pv", "unpublish handle-of-pv")
		w.wantNothing()
	})
	t.Run("inline", func(t *testing.T) {
		w := start(t, nil)
		w.setUp(inline("a", "scratch"))
		w.tearDown(inline("a", "scratch"))
		w.wantCalls("publish csi-of-ascratch", "unpublish csi-of-ascratch")
		w.wantNothing()
	})
	for name, tt := range map[string]struct {
		object func(*api)
		volume *podvolumes.Volume
		want   string
	}{
		"inline without an object":     {func(a *api) { a.drivers = nil }, inline("a", "v"), "has no CSIDriver object"},
		"persistent without an object": {func(a *api) { a.drivers = nil }, persistent("a", "v"), "waiting for VolumeAttachment csi-"},
		"inline, only persistent taken": {func(a *api) {
			a.set(func(s *storagev1.CSIDriverSpec) { s.VolumeLifecycleModes = s.VolumeLifecycleModes[:1] })
		}, inline("a", "v"), `lists ["Persistent"], not "Ephemeral"`},
		"persistent, only inline taken": {func(a *api) {
			a.set(func(s *storagev1.CSIDriverSpec) { s.VolumeLifecycleModes = s.VolumeLifecycleModes[1:] })
		}, persistent("a", "v"), `lists ["Ephemeral"], not "Persistent"`},
		"the API is away": {func(a *api) { a.down = errors.New("no route") }, persistent("a", "v"), "read CSIDriver disks.example.com: no route"},
		"no secret": {nil, func() *podvolumes.Volume {
			v := inline("a", "v")
			v.CSI.PublishSecret = &v1.SecretReference{Namespace: "ns", Name: "s"}
			return v
		}(), `waiting for Secret ns/s (volume "v"): not found`},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, nil)
			if tt.object != nil {
				tt.object(w.api)
			}
			_, err := w.host.SetUp(t.Context(), tt.volume)
			wantErr(t, err, tt.want)
			w.wantCalls()
			w.tearDown(tt.volume)
		})
	}
}

func TestAttach(t *testing.T) {
	w := start(t, nil)
	w.api.set(func(s *storagev1.CSIDriverSpec) { s.AttachRequired = nil })
	v := persistent("a", "pv")
	name := podvolumes.CSIAttachment("handle-of-pv", driverName, "n1")
	attachment := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: driverName}}
	set := func(change func()) {
		w.api.mu.Lock()
		defer w.api.mu.Unlock()
		change()
		w.api.attachments = map[string]*storagev1.VolumeAttachment{name: attachment.DeepCopy()}
	}
	wantWaiting := func(want string) {
		t.Helper()
		_, err := w.host.SetUp(t.Context(), v)
		wantErr(t, err, `waiting for VolumeAttachment `+name+` (volume "data"): `+want)
		if !errors.Is(err, podvolumes.ErrWaiting) {
			t.Errorf("%v does not wait", err)
		}
		w.wantCalls()
	}
	wantWaiting("not found")
	set(func() {})
	wantWaiting("driver disks.example.com has not attached the volume yet")
	set(func() { attachment.Status.AttachError = &storagev1.VolumeError{Message: "no free slot"} })
	wantWaiting("no free slot")
	set(func() {
		attachment.Status.AttachError = nil
		attachment.Status.Attached, attachment.Status.AttachmentMetadata = true, map[string]string{"device": "/dev/sdz"}
	})
	w.setUp(v)
	for _, c := range w.driver.Calls() {
		if got := c.Request.(interface{ GetPublishContext() map[string]string }).GetPublishContext()["device"]; got != "/dev/sdz" {
			t.Errorf("%s: device %q", c.Name, got)
		}
	}
	if !w.host.Attaches(driverName) || !w.host.Attaches("unknown") {
		t.Error("volumes are attached unless it is known that they are not")
	}
	w.api.set(nil)
	w.restart()
	if w.host.Attaches(driverName) {
		t.Error("the CSIDriver says that volumes are not attached")
	}
}

// A driver that wants it is asked again; the others are left alone, even while
// the API is away.
func TestRepublish(t *testing.T) {
	w := start(t, nil)
	w.api.set(func(s *storagev1.CSIDriverSpec) { s.RequiresRepublish = new(true) })
	v := persistent("a", "pv")
	v.FSGroup = new(int64(2000))
	w.setUp(v)
	w.setUp(v)
	w.wantCalls("stage handle-of-pv", "publish handle-of-pv", "publish handle-of-pv")
	if len(w.groups) != 1 {
		t.Errorf("given to the group %d times", len(w.groups))
	}
	// A refusal takes nothing from the pod.
	w.driver.Fail("NodePublishVolume", 1, status.Error(codes.PermissionDenied, "no more"))
	_, err := w.host.SetUp(t.Context(), v)
	wantErr(t, err, "NodePublishVolume: no more (PermissionDenied)")
	if len(w.driver.Left()) != 2 {
		t.Errorf("left: %v", w.driver.Left())
	}
	w.wantCalls("publish handle-of-pv")
	w.api.mu.Lock()
	w.api.down = errors.New("no route")
	w.api.mu.Unlock()
	w.setUp(v)
	w.wantCalls()
}

// What failed is tried again, and is torn down in whatever state it is.
func TestFailed(t *testing.T) {
	for name, tt := range map[string]struct {
		volume *podvolumes.Volume
		fail   func(d *csidriver.Driver)
		want   string
		left   []string // calls of the tear-down
	}{
		"stage refused":   {persistent("a", "pv"), func(d *csidriver.Driver) { d.Fail("NodeStageVolume", 1, status.Error(codes.NotFound, "gone")) }, "NodeStageVolume: gone (NotFound)", []string{"unpublish handle-of-pv", "unstage handle-of-pv"}},
		"publish refused": {persistent("a", "pv"), func(d *csidriver.Driver) { d.Fail("NodePublishVolume", 1, status.Error(codes.NotFound, "gone")) }, "NodePublishVolume: gone (NotFound)", []string{"unpublish handle-of-pv", "unstage handle-of-pv"}},
		"publish perhaps under way": {persistent("a", "pv"), func(d *csidriver.Driver) {
			d.FailAfter("NodePublishVolume", 1, status.Error(codes.Unavailable, "gone"))
		}, "(Unavailable)", []string{"unpublish handle-of-pv", "unstage handle-of-pv"}},
		"inline refused":             {inline("a", "s"), func(d *csidriver.Driver) { d.Fail("NodePublishVolume", 1, status.Error(codes.InvalidArgument, "bad")) }, "bad (InvalidArgument)", nil},
		"inline perhaps under way":   {inline("a", "s"), func(d *csidriver.Driver) { d.FailAfter("NodePublishVolume", 1, status.Error(codes.Aborted, "busy")) }, "busy (Aborted)", []string{"unpublish csi-of-as"}},
		"inline refused, as it says": {inline("a", "s"), func(d *csidriver.Driver) { d.Fail("NodePublishVolume", 1, errTrouble) }, "trouble (Unknown)", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, nil)
			tt.fail(w.driver)
			_, err := w.host.SetUp(t.Context(), tt.volume)
			wantErr(t, err, tt.want)
			w.driver.Forget()
			w.tearDown(tt.volume)
			w.wantCalls(tt.left...)
			w.wantNothing()
			// And again, from the start.
			tt.fail(w.driver)
			if _, err := w.host.SetUp(t.Context(), tt.volume); err == nil {
				t.Error("no error")
			}
			w.setUp(tt.volume)
			w.tearDown(tt.volume)
			w.wantNothing()
		})
	}
}

// The agent dies around any call, and the next gets to what is wanted, or to
// nothing.
func TestKilled(t *testing.T) {
	calls := []string{"NodeStageVolume", "NodePublishVolume", "SetGroup", "NodeUnpublishVolume", "NodeUnstageVolume"}
	t.Run("filesystem", func(t *testing.T) { killed(t, persistent, calls) })
	t.Run("device", func(t *testing.T) {
		killed(t, raw, slices.DeleteFunc(calls, func(call string) bool { return call == "SetGroup" }))
	})
}

func killed(t *testing.T, volume func(pod, pv string) *podvolumes.Volume, calls []string) {
	for _, call := range calls {
		for _, when := range []string{"before", "after"} {
			for _, then := range []string{"up", "down"} {
				t.Run(call+" "+when+" "+then, func(t *testing.T) {
					w := start(t, nil)
					v, other := volume("a", "pv"), volume("b", "pv2")
					v.FSGroup = new(int64(2000))
					w.setUp(other)
					if strings.HasPrefix(call, "NodeUn") {
						w.setUp(v)
					}
					switch {
					case call == "SetGroup":
						w.groupErr = errTrouble
					case when == "before":
						w.driver.Fail(call, 1, errTrouble)
					default:
						w.driver.FailAfter(call, 1, errTrouble)
					}
					var err error
					if strings.HasPrefix(call, "NodeUn") {
						err = w.host.TearDown(t.Context(), v.PodUID, v.ID)
					} else {
						_, err = w.host.SetUp(t.Context(), v)
					}
					wantErr(t, err, "trouble")
					w.groupErr = nil
					w.restart()
					if then == "up" {
						w.setUp(v)
						if left := w.driver.Left(); len(left) != 4 {
							t.Errorf("the driver has %q", left)
						}
					}
					w.tearDown(v)
					w.tearDown(other)
					w.wantNothing()
				})
			}
		}
	}
}

// It dies between its own steps of removal: these states are on the disk then.
func TestKilledWhileRemoving(t *testing.T) {
	w := start(t, nil)
	v := persistent("a", "pv")
	target := w.setUp(v)
	dir := filepath.Dir(target)
	ready := filepath.Join(w.dir, "pods/a/plugins/kubernetes.io~csi/pv/ready")
	record, err := os.ReadFile(filepath.Join(dir, "vol_data.json"))
	if err != nil {
		t.Fatal(err)
	}
	staging := filepath.Join(w.dir, "plugins/kubernetes.io/csi", driverName, podvolumes.StagedCSI("handle-of-pv"))
	w.tearDown(v)
	for _, state := range []func() error{
		func() error { return os.MkdirAll(dir, 0o750) },
		func() error { return errors.Join(os.MkdirAll(dir, 0o750), os.MkdirAll(filepath.Dir(ready), 0o750)) },
		func() error {
			return errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(filepath.Join(dir, "vol_data.json"), record, 0o600))
		},
		func() error {
			return errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(filepath.Join(dir, "vol_data.json"), record, 0o600), os.MkdirAll(staging, 0o750))
		},
		func() error {
			return errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(filepath.Join(dir, "vol_data.json"), record, 0o600),
				os.MkdirAll(filepath.Join(staging, "globalmount"), 0o750), os.WriteFile(filepath.Join(staging, "vol_data.json"), record, 0o600))
		},
	} {
		if err := state(); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.tearDown(v)
		w.wantNothing()
	}
}

// A driver that hangs holds up its volume and no other, and not for ever.
func TestHanging(t *testing.T) {
	w := start(t, nil)
	goOn := w.driver.Hang("NodePublishVolume")
	defer goOn()
	ctx, cancel := context.WithCancel(t.Context())
	hangs := make(chan error, 1)
	go func() {
		_, err := w.host.SetUp(ctx, inline("a", "s"))
		hangs <- err
	}()
	for len(w.driver.Calls("NodePublishVolume")) == 0 {
		time.Sleep(time.Millisecond)
	}
	// The same volume waits, as long as its caller wants.
	soon, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer end()
	wantErr(t, w.host.TearDown(soon, types.UID("a"), inline("a", "s").ID), "wait for another pod's use of it: context deadline exceeded")
	cancel()
	wantErr(t, <-hangs, "(Canceled)")
	goOn()
	w.setUp(inline("b", "s"))
	w.tearDown(inline("b", "s"))
	w.tearDown(inline("a", "s"))
	w.wantNothing()
}

func TestNoDriver(t *testing.T) {
	w := start(t, nil)
	v := persistent("a", "pv")
	w.setUp(v)
	w.host.Deregister(driverName, "/somewhere/else")
	if drivers := w.host.Drivers(); len(drivers) != 1 {
		t.Errorf("drivers: %v", drivers)
	}
	w.host.Deregister(driverName, w.driver.Endpoint())
	w.setUp(v) // it has it
	_, err := w.host.SetUp(t.Context(), persistent("b", "pv"))
	wantErr(t, err, `set up volume "data": CSI driver disks.example.com is not registered on this node: start its node plugin`)
	wantErr(t, w.host.TearDown(t.Context(), v.PodUID, v.ID), "is not registered on this node: start its node plugin")
	w.tearDown(persistent("b", "pv"))
	w.restart()
	w.tearDown(v)
	w.wantNothing()
}

func TestRegister(t *testing.T) {
	w := start(t, func(c *csidriver.Config) { c.Topology, c.MaxVolumes = map[string]string{"zone": "z1"}, 12 })
	want := []csi.Driver{{Name: driverName, NodeID: "node-of-" + driverName, Topology: map[string]string{"zone": "z1"}, MaxVolumes: 12}}
	if diff := cmp.Diff(w.host.Drivers(), want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	for _, tt := range []struct {
		name, driver, endpoint string
		versions               []string
		want                   string
	}{
		{"no version", "d", w.driver.Endpoint(), nil, "only 1.x can be used"},
		{"an old one", "d", w.driver.Endpoint(), []string{"0.3.0"}, `it speaks versions ["0.3.0"], and only 1.x can be used`},
		{"a new one", "d", w.driver.Endpoint(), []string{"2.0.0"}, "only 1.x can be used"},
		{"nonsense", "d", w.driver.Endpoint(), []string{"one"}, `version "one" cannot be read`},
		{"one of several", "d", w.driver.Endpoint(), []string{"0.3.0", "1.5.0", "2.0.0"}, ""},
		{"a second one of the name", driverName, "/other.sock", []string{"1.0.0"}, "is registered already at " + w.driver.Endpoint()},
		{"no name", "", w.driver.Endpoint(), []string{"1.0.0"}, "is no name of a CSI driver"},
		{"a name that leads out", "../../etc", w.driver.Endpoint(), []string{"1.0.0"}, "is no name of a CSI driver"},
		{"nobody there", "d2", filepath.Join(t.TempDir(), "s"), []string{"1.0.0"}, "(Unavailable)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := w.host.Register(t.Context(), tt.driver, tt.endpoint, tt.versions)
			if tt.want != "" || err != nil {
				wantErr(t, err, tt.want)
			}
		})
	}
}
