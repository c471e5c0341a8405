package csi_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/csidriver"
)

// found asks what is there of a volume.
func (w *world) found(v *podvolumes.Volume) podvolumes.Found {
	return w.host.Found(podvolumes.Found{PodUID: v.PodUID, ID: v.ID})
}

// A node that upstream's kubelet ran until now: its records say whose volumes
// there are, and they go as ours do.
func TestUpstreamsRecords(t *testing.T) {
	w := start(t, nil)
	v, in := persistent("a", "pv"), inline("a", "scratch")
	target, inTarget := w.setUp(v), w.setUp(in)
	// Upstream's kubelet makes no marks, and writes its records with sorted keys.
	write := func(dir, text string) error {
		return os.WriteFile(filepath.Join(dir, "vol_data.json"), []byte(text+"\n"), 0o644)
	}
	err := errors.Join(
		os.RemoveAll(filepath.Join(w.dir, "pods/a/plugins")),
		write(filepath.Dir(target), `{"attachmentID":"csi-0","driverName":"disks.example.com","nodeName":"n1","specVolID":"pv","volumeHandle":"handle-of-pv","volumeLifecycleMode":"Persistent"}`),
		write(filepath.Dir(inTarget), `{"attachmentID":"csi-0","driverName":"disks.example.com","nodeName":"n1","seLinuxMountContext":"","specVolID":"scratch","volumeHandle":"csi-of-ascratch","volumeLifecycleMode":"Ephemeral"}`),
		write(filepath.Join(w.dir, "plugins/kubernetes.io/csi", driverName, podvolumes.StagedCSI("handle-of-pv")), `{"driverName":"disks.example.com","volumeHandle":"handle-of-pv"}`),
	)
	if err != nil {
		t.Fatal(err)
	}
	w.restart()
	want := podvolumes.Found{PodUID: "a", ID: v.ID, Path: target, PV: "pv"}
	if diff := cmp.Diff(w.found(v), want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	want = podvolumes.Found{PodUID: "a", ID: in.ID, Path: inTarget, Name: "scratch"}
	if diff := cmp.Diff(w.found(in), want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	w.setUp(v) // asked again, which changes nothing
	w.tearDown(v)
	w.tearDown(in)
	w.wantNothing()
}

// A record that a power cut left empty is in nobody's way where nothing is
// mounted, and is told of where something is.
func TestEmptyRecord(t *testing.T) {
	w := start(t, nil)
	v, other := persistent("a", "pv"), persistent("b", "pv2")
	w.setUp(v)
	target := w.setUp(other)
	record := filepath.Join(filepath.Dir(target), "vol_data.json")
	if err := os.WriteFile(record, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.tearDown(v)
	wantErr(t, w.host.TearDown(t.Context(), other.PodUID, other.ID), record)
	w.setUp(other) // it is known what it is again
	w.restart()
	w.setUp(other)
	w.tearDown(other)
	w.wantNothing()
}

// A volume stays staged for a pod of which a restart left only the record, whichever of
// the two goes first, and for one whose record cannot be read.
func TestOthersAfterRestart(t *testing.T) {
	w := start(t, nil)
	a, b, c := persistent("a", "pv"), persistent("b", "pv"), persistent("c", "pv")
	w.setUp(a)
	w.setUp(b)
	w.restart()
	w.setUp(c)
	w.driver.Forget()
	w.tearDown(c)
	w.tearDown(a)
	w.wantCalls("unpublish handle-of-pv", "unpublish handle-of-pv")
	w.setUp(a)
	w.tearDown(b)
	w.driver.Forget()
	w.tearDown(a)
	w.wantCalls("unpublish handle-of-pv", "unstage handle-of-pv")
	w.wantNothing()
}

// Real mounts: a restart finds them, and asks for nothing; a reboot takes them,
// and all is asked for again.
func TestMounted(t *testing.T) {
	testenv.Need(t, "root")
	w := start(t, func(c *csidriver.Config) { c.Mount = true })
	v, ro := persistent("a", "pv"), persistent("b", "pv")
	ro.ReadOnly = true
	target, roTarget := w.setUp(v), w.setUp(ro)
	t.Cleanup(func() { // what a failure leaves
		for _, path := range []string{target, roTarget, w.staging("pv")} {
			_ = unix.Unmount(path, unix.MNT_DETACH)
		}
	})
	if err := os.WriteFile(filepath.Join(target, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(roTarget, "file"), []byte("x"), 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to a read-only volume: %v", err)
	}
	w.restart()
	want := podvolumes.Found{PodUID: "a", ID: v.ID, Path: target, Name: "data", PV: "pv", Complete: true}
	if diff := cmp.Diff(w.found(v), want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	w.setUp(v)
	w.setUp(ro)
	w.wantCalls()

	for _, path := range []string{target, roTarget, w.staging("pv")} { // a reboot
		if err := unix.Unmount(path, 0); err != nil {
			t.Fatal(err)
		}
	}
	w.restart()
	if f := w.found(v); f.Complete {
		t.Errorf("found %+v", f)
	}
	w.setUp(v)
	w.setUp(ro)
	w.wantCalls("stage handle-of-pv", "publish handle-of-pv", "publish handle-of-pv")
	if data, err := os.ReadFile(filepath.Join(target, "file")); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
	w.tearDown(v)
	w.tearDown(ro)
	w.wantNothing()

	// So does a volume whose other pods are not known.
	other := persistent("d", "pv2")
	otherTarget := w.setUp(other)
	record := filepath.Join(filepath.Dir(otherTarget), "vol_data.json")
	text, err := os.ReadFile(record)
	if err := errors.Join(err, os.WriteFile(record, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.setUp(v)
	wantErr(t, w.host.TearDown(t.Context(), v.PodUID, v.ID), "who else has the volume is not known: read whose volume it is: "+record)
	if err := os.WriteFile(record, text, 0o600); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.tearDown(v)
	w.tearDown(other)
	w.wantNothing()

	// What is mounted and nobody knows of stays, and is told of.
	dir := filepath.Join(w.dir, "pods/c/volumes/kubernetes.io~csi/pv/mount")
	if err := errors.Join(os.MkdirAll(dir, 0o750), unix.Mount("tmpfs", dir, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	c := persistent("c", "pv")
	wantErr(t, w.host.TearDown(t.Context(), c.PodUID, c.ID), "something is still mounted on "+dir+"; nothing says which driver it is of")
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	w.tearDown(c)
	w.wantNothing()
}

func (w *world) staging(pv string) string {
	return filepath.Join(w.dir, "plugins/kubernetes.io/csi", driverName, podvolumes.StagedCSI("handle-of-"+pv), "globalmount")
}
