package volumeplugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// A raw device is a link in the pod's folder, where upstream has it; the next
// process finds it, and taking it away touches nothing on it.
func TestBlock(t *testing.T) {
	h, device := newDiskHost(t, 1<<20)
	byName := filepath.Join(t.TempDir(), "disk")
	must(t, os.Symlink(device, byName))
	v := raw("pv-1", byName)
	v.ReadOnly = true
	link, err := setUpFor(t, h, uid, v)
	must(t, err)
	if want := string(h.layout) + "/pods/" + string(uid) + "/volumeDevices/kubernetes.io~local-volume/pv-1"; link != want {
		t.Errorf("link %s, want %s", link, want)
	}
	if to, err := os.Readlink(link); err != nil || to != device {
		t.Errorf("leads to %s, %v", to, err)
	}
	write(t, device, "data") // opens it as the pod does

	next := New(Config{Dir: string(h.layout), Log: h.log})
	found, err := next.Found(t.Context())
	must(t, err)
	want := podvolumes.Found{ID: v.ID, PodUID: uid, Path: link, Name: "data", PV: "pv-1", ReadOnly: true, Complete: true}
	if len(found) != 1 || found[0] != want {
		t.Errorf("found %+v, want %+v", found, want)
	}

	// A pod that has it alone gets it again, and shares it.
	alone, err := os.OpenFile(device, os.O_RDWR|os.O_EXCL, 0)
	must(t, err)
	for _, pod := range []struct {
		name string
		v    podvolumes.Volume
	}{{"itself", v}, {"another", raw("pv-1", device)}} {
		owner := uid
		if pod.name == "another" {
			owner = other
		}
		if _, err := setUpFor(t, next, owner, pod.v); err != nil {
			t.Errorf("%s: %v", pod.name, err)
		}
	}
	must(t, alone.Close())

	for range 2 {
		must(t, next.TearDown(t.Context(), uid, v.ID))
		must(t, next.TearDown(t.Context(), other, v.ID))
	}
	must(t, next.RemovePod(t.Context(), uid))
	if exists(link) || content(t, device)[:4] != "data" {
		t.Error("the link is left, or the data gone")
	}
}

// After a reboot disks may have other names: the link follows the volume's path.
func TestBlockMoves(t *testing.T) {
	h, device := newDiskHost(t, 1<<20)
	elsewhere := testenv.LoopDevice(t, 1<<20)
	byName := filepath.Join(t.TempDir(), "disk")
	must(t, os.Symlink(device, byName))
	link, err := setUpFor(t, h, uid, raw("pv-1", byName))
	must(t, err)
	must(t, os.Remove(byName))
	must(t, os.Symlink(elsewhere, byName))
	_, err = setUpFor(t, h, uid, raw("pv-1", byName))
	must(t, err)
	if to, err := os.Readlink(link); err != nil || to != elsewhere {
		t.Errorf("leads to %s, %v", to, err)
	}
}

func TestBlockRefused(t *testing.T) {
	h := newHost(t)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "data")
	for path, want := range map[string]string{file: "not a block device", "/dev/null": "not a block device", file + "-gone": "no such file"} {
		link, err := setUpFor(t, h, uid, raw("pv-1", path))
		if err == nil || !strings.Contains(err.Error(), want) || exists(link) && link != "" {
			t.Errorf("%s: %v", path, err)
		}
	}
	if found, err := h.Found(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

// What an upstream kubelet made for a pod is found, serves on, and goes with it:
// the device on a file of its plugins folder, and a loop device on that.
func TestBlockOfUpstream(t *testing.T) {
	h, device := newDiskHost(t, 1<<20)
	id := raw("pv-1", device).ID
	link := h.layout.Volume(uid, id)
	must(t, makeDir(filepath.Dir(link)))
	must(t, os.Symlink(device, link))
	folder := string(h.layout) + "/plugins/kubernetes.io~local-volume/volumeDevices/pv-1"
	must(t, makeDir(folder))
	for _, pod := range []string{string(uid), string(other)} {
		point := filepath.Join(folder, pod)
		must(t, touch(point))
		must(t, unix.Mount(device, point, "", unix.MS_BIND, ""))
	}
	lock := strings.TrimSpace(tool(t, "losetup", "--find", "--show", filepath.Join(folder, string(uid))))
	t.Cleanup(func() { _ = detachLoop(lock) })

	found, err := h.Found(t.Context())
	must(t, err)
	if want := (podvolumes.Found{ID: id, PodUID: uid, Path: link, PV: "pv-1"}); len(found) != 1 || found[0] != want {
		t.Errorf("found %+v, want %+v", found, want)
	}
	path, err := setUpFor(t, h, uid, raw("pv-1", device))
	must(t, err)
	if path != link {
		t.Errorf("path %s, want %s", path, link)
	}
	for range 2 {
		must(t, h.TearDown(t.Context(), uid, id))
	}
	if out := tool(t, "losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"); strings.Contains(out, folder) {
		t.Errorf("the loop device is left:\n%s", out)
	}
	if exists(link) || exists(filepath.Join(folder, string(uid))) || !exists(filepath.Join(folder, string(other))) {
		t.Error("too little is gone, or another pod's too")
	}
	must(t, h.TearDown(t.Context(), other, id))
	if left := mountsBelow(t, string(h.layout)); len(left) > 0 || exists(folder) {
		t.Errorf("left: %v", left)
	}
}
