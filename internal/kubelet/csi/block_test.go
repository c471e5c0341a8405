package csi_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/csidriver"
)

// A raw device is staged once, published to each pod, and unstaged after the last.
// Paths and records are upstream's.
func TestDevice(t *testing.T) {
	w := start(t, nil)
	a, b := raw("a", "pv"), raw("b", "pv")
	a.ReadOnly = true
	link := w.setUp(a)
	if want := filepath.Join(w.dir, "pods/a/volumeDevices/kubernetes.io~csi/pv"); link != want {
		t.Errorf("it is at %s, want %s", link, want)
	}
	devices := filepath.Join(w.dir, "plugins/kubernetes.io/csi/volumeDevices")
	target := filepath.Join(devices, "publish/pv/a")
	if to, err := os.Readlink(link); err != nil || to != target {
		t.Errorf("the link leads to %s, %v, want %s", to, err, target)
	}
	got := w.driver.Calls("NodePublishVolume")[0].Request.(*spec.NodePublishVolumeRequest)
	got.VolumeContext = nil
	want := &spec.NodePublishVolumeRequest{
		VolumeId: "handle-of-pv", StagingTargetPath: filepath.Join(devices, "staging/pv"), TargetPath: target, Readonly: true,
		VolumeCapability: &spec.VolumeCapability{
			AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}},
		},
	}
	if diff := cmp.Diff(got, want, protocmp.Transform()); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	const record = "plugins/kubernetes.io/csi/volumeDevices/pv/data/vol_data.json"
	if got, want := w.files()[record], `{"specVolID":"pv","volumeHandle":"handle-of-pv","driverName":"disks.example.com","nodeName":"n1","attachmentID":"`+podvolumes.CSIAttachment("handle-of-pv", driverName, "n1")+"\"}\n"; got != want {
		t.Errorf("record %s, want %s", got, want)
	}
	w.wantCalls("stage handle-of-pv", "publish handle-of-pv")
	w.setUp(b)
	w.setUp(a)
	w.wantCalls("publish handle-of-pv")

	b.GrowTo = larger
	w.grow(b)
	if got, want := w.driver.Calls("NodeExpandVolume")[0].Request.(*spec.NodeExpandVolumeRequest).GetVolumePath(), filepath.Join(devices, "publish/pv/b"); got != want {
		t.Errorf("it grows at %s, want %s", got, want)
	}
	w.wantCalls("expand handle-of-pv")
	w.tearDown(a)
	w.wantCalls("unpublish handle-of-pv")
	w.restart()
	w.tearDown(b)
	w.wantCalls("unpublish handle-of-pv", "unstage handle-of-pv")
	w.tearDown(b)
	w.wantCalls()
	w.wantNothing()
}

func TestDeviceWithoutStaging(t *testing.T) {
	w := start(t, func(c *csidriver.Config) { c.Lacks = rpc(spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) })
	v := raw("a", "pv")
	v.GrowTo = larger
	w.setUp(v)
	w.grow(v)
	w.tearDown(v)
	w.wantCalls("publish handle-of-pv", "expand handle-of-pv", "unpublish handle-of-pv")
	w.wantNothing()
}

// The agent dies between its own steps of removal: these states are on the disk then.
func TestKilledWhileRemovingDevice(t *testing.T) {
	const devices = "plugins/kubernetes.io/csi/volumeDevices/"
	const link, ready, data, staging, publish = "pods/a/volumeDevices/kubernetes.io~csi/pv", "pods/a/plugins/kubernetes.io~csi/pv/ready", devices + "pv/data", devices + "staging/pv", devices + "publish/pv"
	for _, tt := range []struct {
		name string
		left []string // folders, but for the record, the link and the mark
	}{
		{"nothing but the link", []string{link}},
		{"the mark", []string{ready, link}},
		{"folders", []string{ready, link, data}},
		{"the record", []string{ready, link, data + "/vol_data.json"}},
		{"where it was published", []string{ready, link, data + "/vol_data.json", publish}},
		{"where it was staged", []string{ready, link, data + "/vol_data.json", publish, staging}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := start(t, nil)
			v := raw("a", "pv")
			w.setUp(v)
			record := w.files()[data+"/vol_data.json"]
			w.tearDown(v)
			w.wantNothing()
			for _, name := range tt.left {
				path := filepath.Join(w.dir, name)
				err := os.MkdirAll(filepath.Dir(path), 0o750)
				switch name {
				case link:
					err = errors.Join(err, os.Symlink(filepath.Join(w.dir, publish, "a"), path))
				case ready:
					err = errors.Join(err, os.WriteFile(path, []byte("data"), 0o600))
				case data + "/vol_data.json":
					err = errors.Join(err, os.WriteFile(path, []byte(record), 0o600))
				default:
					err = errors.Join(err, os.Mkdir(path, 0o750))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			w.restart()
			w.tearDown(v)
			if tt.name != "folders" { // without a record nobody knows of them
				w.wantNothing()
			}
			w.setUp(v)
			w.tearDown(v)
			w.wantNothing()
		})
	}
}

// A real device: its pod writes to it through the link, a restart finds it and asks
// for nothing, and a reboot takes it.
func TestRealDevice(t *testing.T) {
	device := testenv.LoopDevice(t, 1<<20)
	w := start(t, func(c *csidriver.Config) { c.Mount = true })
	w.provide(device)
	v := raw("a", "pv")
	v.ReadOnly = true
	link := w.setUp(v)
	published := filepath.Join(w.dir, "plugins/kubernetes.io/csi/volumeDevices/publish/pv/a")
	t.Cleanup(func() { _ = unix.Unmount(published, unix.MNT_DETACH) }) // what a failure leaves
	if err := os.WriteFile(link, []byte("data"), 0); err != nil {
		t.Fatal(err)
	}
	w.restart()
	want := podvolumes.Found{PodUID: "a", ID: v.ID, Path: link, Name: "data", PV: "pv", ReadOnly: true, Complete: true}
	if diff := cmp.Diff(w.found(v), want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	w.setUp(v)
	w.wantCalls()

	if err := unix.Unmount(published, 0); err != nil { // a reboot
		t.Fatal(err)
	}
	w.restart()
	if f := w.found(v); f.Complete {
		t.Errorf("found %+v", f)
	}
	w.setUp(v)
	w.wantCalls("stage handle-of-pv", "publish handle-of-pv")
	w.tearDown(v)
	w.wantNothing()
	if got := firstBytes(t, device, 4); got != "data" {
		t.Errorf("the device holds %q", got)
	}
}

// What an upstream kubelet made for a pod serves on and goes with it: the device on a
// file of its own, and a loop device on that.
func TestDeviceOfUpstream(t *testing.T) {
	device := testenv.LoopDevice(t, 1<<20)
	w := start(t, func(c *csidriver.Config) { c.Mount = true })
	w.provide(device)
	v := raw("a", "pv")
	link := w.setUp(v)
	dev := filepath.Join(w.dir, "plugins/kubernetes.io/csi/volumeDevices/pv/dev")
	point := filepath.Join(dev, "a")
	err := errors.Join(os.RemoveAll(filepath.Join(w.dir, "pods/a/plugins")), os.Mkdir(dev, 0o750), os.WriteFile(point, nil, 0o600), unix.Mount(device, point, "", unix.MS_BIND, ""))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", point).CombinedOutput(); err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	w.restart()
	want := podvolumes.Found{PodUID: "a", ID: v.ID, Path: link, PV: "pv"}
	if diff := cmp.Diff(w.found(v), want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	w.setUp(v) // asked again, which changes nothing
	w.tearDown(v)
	w.wantNothing()
	out, err := exec.CommandContext(t.Context(), "losetup", "--list", "--noheadings", "--output", "BACK-FILE").CombinedOutput()
	if err != nil || strings.Contains(string(out), w.dir) {
		t.Errorf("a loop device is left: %v\n%s", err, out)
	}
}

// provide makes a device the content of the volume pv.
func (w *world) provide(device string) {
	w.t.Helper()
	data := w.driver.Data("handle-of-pv")
	if err := errors.Join(os.MkdirAll(filepath.Dir(data), 0o750), os.Symlink(device, data)); err != nil {
		w.t.Fatal(err)
	}
}

func firstBytes(t *testing.T, path string, n int) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got := make([]byte, n)
	if _, err := io.ReadFull(file, got); err != nil {
		t.Fatal(err)
	}
	return string(got)
}
