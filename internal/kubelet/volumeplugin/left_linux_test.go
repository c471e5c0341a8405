package volumeplugin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// share makes a folder a mount that shares what is mounted in it, as a whole
// machine's root is where systemd runs.
func share(t *testing.T, dir string) {
	t.Helper()
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
}

// mountIn mounts a tmpfs, with a file in it, on a folder that it makes.
func mountIn(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	write(t, filepath.Join(dir, "keep"), "data")
}

// What a pod left mounted in a volume is unmounted with it, whatever the
// volume is, and nothing in it changes; nor does what is mounted in the folders
// that such a mount, or the volume, was made of.
func TestTearDownLeft(t *testing.T) {
	disk := func(t *testing.T) (*Host, podvolumes.Volume) {
		h, device := newDiskHost(t, 320<<20)
		return h, onDisk("pv-1", device)
	}
	plain := func(v podvolumes.Volume) func(t *testing.T) (*Host, podvolumes.Volume) {
		return func(t *testing.T) (*Host, podvolumes.Volume) { return newHost(t), v }
	}
	for name, made := range map[string]func(t *testing.T) (*Host, podvolumes.Volume){
		"emptyDir":           plain(volume(podvolumes.EmptyDir)),
		"emptyDir in memory": plain(memory(0)),
		"local disk":         disk,
	} {
		t.Run(name, func(t *testing.T) {
			h, v := made(t)
			share(t, string(h.layout))
			path := setUp(t, h, v)
			part, err := h.BindSubPath(t.Context(), SubPath{PodUID: uid, Volume: "data", VolumePath: path, Path: "sub", Container: "app"})
			must(t, err)

			// The host's, with something mounted in it.
			outside := t.TempDir()
			share(t, outside)
			mountIn(t, filepath.Join(outside, "in"))

			must(t, os.MkdirAll(filepath.Join(path, "a/b"), 0o755))
			must(t, unix.Mount(outside, filepath.Join(path, "a/b"), "", unix.MS_BIND|unix.MS_REC, ""))
			for range 3 { // as each start of a container does
				mountIn(t, filepath.Join(path, "a/c"))
			}
			mountIn(t, filepath.Join(part, "d"))
			busy, err := os.Open(filepath.Join(part, "d/keep"))
			must(t, err)
			defer busy.Close()
			if left := mountsBelow(t, path); len(left) < 6 {
				t.Fatalf("mounted: %v", left)
			}

			must(t, h.CleanSubPaths(t.Context(), uid))
			must(t, h.TearDown(t.Context(), uid, v.ID))
			must(t, h.RemovePod(t.Context(), uid))
			if left := mountsBelow(t, string(h.layout)); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if got := content(t, filepath.Join(outside, "in/keep")); got != "data" {
				t.Errorf("what is mounted on the host's own folder holds %q", got)
			}
			data := make([]byte, 4)
			if _, err := busy.Read(data); err != nil || string(data) != "data" {
				t.Errorf("a program that has a file open reads %q, %v", data, err)
			}
		})
	}
}

// A local volume that is a folder of the host: what is mounted there stays,
// for the host and for another pod, when one of its pods ends.
func TestTearDownLeftOfLocal(t *testing.T) {
	h := newHost(t)
	share(t, string(h.layout))
	folder := t.TempDir()
	share(t, folder)
	v := podvolumes.Volume{ID: podvolumes.ID{Kind: podvolumes.Local, Dir: "pv-1"}, Name: "data", HostPath: folder}
	path := setUp(t, h, v)
	second, err := setUpFor(t, h, other, v)
	must(t, err)
	mountIn(t, filepath.Join(path, "in"))
	want := []string{filepath.Join(second, "in"), filepath.Join(folder, "in")}
	must(t, h.TearDown(t.Context(), uid, v.ID))
	for _, dir := range want {
		if got := content(t, filepath.Join(dir, "keep")); got != "data" {
			t.Errorf("%s holds %q", dir, got)
		}
	}
	must(t, h.TearDown(t.Context(), other, v.ID))
	if points := mountsBelow(t, folder); len(points) != 1 {
		t.Errorf("on the host's folder there is mounted: %v", points)
	}
	if left := mountsBelow(t, string(h.layout)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A pod that shares the volume cannot lead the unmounting to a mount outside.
func TestAttackLeft(t *testing.T) {
	h, out := newHost(t), newVictim(t)
	mountIn(t, filepath.Join(out.dir, "sub"))
	t.Cleanup(func() { must(t, unix.Unmount(filepath.Join(out.dir, "sub"), unix.MNT_DETACH)) })
	path := setUp(t, h, volume(podvolumes.EmptyDir))
	out.plant(t, path)
	for range rounds {
		for _, name := range []string{"a", "l"} { // whichever of them the folder is now
			if info, err := os.Lstat(filepath.Join(path, name)); err == nil && info.IsDir() {
				mountIn(t, filepath.Join(path, name, "sub"))
			}
		}
		stop := attack(t, path)
		persist(t, func() error {
			_, err := detachBelow(t.Context(), path)
			return err
		})
		stop()
		if got := content(t, filepath.Join(out.dir, "sub/keep")); got != "data" {
			t.Fatalf("the victim's mount holds %q", got)
		}
		if left := mountsBelow(t, path); len(left) > 0 {
			t.Fatalf("left: %v", left)
		}
	}
}

func TestTopsBelow(t *testing.T) {
	points := []string{"/", "/v", "/v/b/c", "/v/b", "/v/b", "/v/b-c", "/vv/x", "/v/b/c/d", "/v/a"}
	got := topsBelow(points, "/v")
	if diff := cmp.Diff(got, []string{"/v/a", "/v/b", "/v/b-c"}); diff != "" {
		t.Errorf("tops (-got +want):\n%s", diff)
	}
}
