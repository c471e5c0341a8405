package volumeplugin

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/atomicdir"
	"github.com/holdfast-dev/holdfast/internal/kubelet/fsgroup"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

const uid types.UID = "11111111-2222-3333-4444-555555555555"

// newHost returns a Host in a folder that is unmounted at the end of the test,
// whatever the test left there.
func newHost(t *testing.T) *Host {
	t.Helper()
	testenv.Need(t, "root")
	dir := t.TempDir()
	t.Cleanup(func() {
		for _, point := range mountsBelow(t, dir) {
			if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	})
	return New(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
}

// mountsBelow returns what is mounted below dir, last first.
func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	points, err := mountPoints()
	if err != nil {
		t.Fatal(err)
	}
	var below []string
	for _, point := range points {
		if strings.HasPrefix(point, dir+"/") {
			below = append([]string{point}, below...)
		}
	}
	return below
}

func setUp(t *testing.T, h *Host, v podvolumes.Volume) string {
	t.Helper()
	v.PodUID = uid
	path, err := h.SetUp(t.Context(), &v)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func touch(path string) error { return os.WriteFile(path, nil, 0o600) }

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func files(data string) map[string]atomicdir.File {
	return map[string]atomicdir.File{"key": {Data: []byte(data), Mode: 0o644}}
}

func volume(kind podvolumes.Kind) podvolumes.Volume {
	return podvolumes.Volume{ID: podvolumes.ID{Kind: kind, Dir: "data"}, Name: "data"}
}

func memory(size int64) podvolumes.Volume {
	v := volume(podvolumes.EmptyDir)
	v.Medium, v.SizeLimit = v1.StorageMediumMemory, size
	return v
}

func isTmpfs(t *testing.T, path string) bool {
	t.Helper()
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Type == unix.TMPFS_MAGIC
}

func TestEmptyDir(t *testing.T) {
	mode := int32(0o1700)
	withMode := volume(podvolumes.EmptyDir)
	withMode.Mode = &mode
	tests := []struct {
		name     string
		volume   podvolumes.Volume
		wantMode fs.FileMode
		memory   bool
	}{
		{"disk", volume(podvolumes.EmptyDir), 0o777, false},
		{"own mode", withMode, fs.ModeSticky | 0o700, false},
		{"memory", memory(1 << 20), fs.ModeSticky | 0o777, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			path := setUp(t, h, tt.volume)
			if want := filepath.Join(string(h.layout), "pods", string(uid), "volumes/kubernetes.io~empty-dir/data"); path != want {
				t.Errorf("path = %s, want %s", path, want)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode()&^fs.ModeDir != tt.wantMode {
				t.Errorf("mode = %v, %v, want %v", info.Mode(), err, tt.wantMode)
			}
			if isMount, err := mounted(path); err != nil || isMount != tt.memory || isTmpfs(t, path) != tt.memory {
				t.Errorf("mounted = %v, %v, want %v", isMount, err, tt.memory)
			}

			// The pod's own changes stay, however often it is set up, and by whom.
			write(t, filepath.Join(path, "file"), "mine")
			if err := os.Chmod(path, 0o711); err != nil {
				t.Fatal(err)
			}
			again := New(Config{Dir: string(h.layout), Log: h.log})
			setUp(t, again, tt.volume)
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o711 || content(t, filepath.Join(path, "file")) != "mine" {
				t.Errorf("changed by the second set-up: %v, %v", info.Mode(), err)
			}
			if n := len(mountsBelow(t, string(h.layout))); n > 1 {
				t.Errorf("%d mounts", n)
			}

			for range 2 {
				if err := h.TearDown(t.Context(), uid, tt.volume.ID); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Lstat(path); err == nil {
				t.Error("still there")
			}
			if err := h.RemovePod(t.Context(), uid); err != nil {
				t.Fatal(err)
			}
			if left, _ := os.ReadDir(h.layout.Pods()); len(left) != 0 || len(mountsBelow(t, string(h.layout))) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestEmptyDirSize(t *testing.T) {
	h := newHost(t)
	path := setUp(t, h, memory(64<<10))
	err := os.WriteFile(filepath.Join(path, "big"), make([]byte, 128<<10), 0o600)
	if err == nil {
		t.Error("128 KiB fit into 64 KiB")
	}
}

// After a reboot the folder and its mark are there and the memory is not.
func TestEmptyDirAfterReboot(t *testing.T) {
	h := newHost(t)
	path := setUp(t, h, memory(0))
	if err := unmount(path); err != nil {
		t.Fatal(err)
	}
	setUp(t, h, memory(0))
	if !isTmpfs(t, path) {
		t.Error("not in memory again")
	}
}

func TestContent(t *testing.T) {
	for _, kind := range []podvolumes.Kind{podvolumes.ConfigMap, podvolumes.Secret, podvolumes.Projected, podvolumes.DownwardAPI} {
		t.Run(string(kind), func(t *testing.T) {
			h := newHost(t)
			v := volume(kind)
			v.Files = map[string]atomicdir.File{"key": {Data: []byte("1"), Mode: 0o400}}
			v.Nested = []string{"below/it"}
			path := setUp(t, h, v)
			if got := content(t, filepath.Join(path, "key")); got != "1" {
				t.Errorf("key = %q", got)
			}
			if isTmpfs(t, path) != (kind != podvolumes.ConfigMap) {
				t.Error("on the wrong medium")
			}
			if info, err := os.Stat(filepath.Join(path, "below/it")); err != nil || !info.IsDir() {
				t.Errorf("nested mount point: %v", err)
			}
			gid := int64(2000)
			v.FSGroup = &gid
			v.Files = map[string]atomicdir.File{"key": {Data: []byte("2"), Mode: 0o440}, "more": {Mode: 0o440}}
			setUp(t, h, v)
			if got := content(t, filepath.Join(path, "key")); got != "2" || !fsgroup.Owns(filepath.Join(path, "key"), gid) {
				t.Errorf("key = %q", got)
			}
			if n := len(mountsBelow(t, string(h.layout))); n > 1 {
				t.Errorf("%d mounts", n)
			}
			found, err := h.Found(t.Context())
			if err != nil || len(found) != 1 || !found[0].Complete || found[0].Kind != kind {
				t.Errorf("found %+v, %v", found, err)
			}
			if err := h.TearDown(t.Context(), uid, v.ID); err != nil {
				t.Fatal(err)
			}
			if found, err := h.Found(t.Context()); err != nil || len(found) != 0 {
				t.Errorf("found %+v, %v", found, err)
			}
		})
	}
}

func TestHostPath(t *testing.T) {
	testenv.Need(t, "root")
	tests := []struct {
		name  string
		kind  v1.HostPathType
		make  func(path string) error
		want  string // part of the error; "": none
		after fs.FileMode
	}{
		{"unset, missing", v1.HostPathUnset, nil, "", 0},
		{"directory", v1.HostPathDirectory, func(p string) error { return os.Mkdir(p, 0o700) }, "", fs.ModeDir},
		{"directory missing", v1.HostPathDirectory, nil, "no such file", 0},
		{"directory is file", v1.HostPathDirectory, touch, "not of type Directory: it is a file", 0},
		{"directory made", v1.HostPathDirectoryOrCreate, nil, "", fs.ModeDir},
		{"directory not made over a file", v1.HostPathDirectoryOrCreate, touch, "it is a file", 0},
		{"file", v1.HostPathFile, touch, "", 0},
		{"file missing", v1.HostPathFile, nil, "no such file", 0},
		{"file made", v1.HostPathFileOrCreate, nil, "", 0},
		{"socket", v1.HostPathSocket, func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) }, "", fs.ModeSocket},
		{"socket is pipe", v1.HostPathSocket, func(p string) error { return unix.Mkfifo(p, 0o600) }, "it is a named pipe", 0},
		{"char", v1.HostPathCharDev, func(p string) error { return unix.Mknod(p, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) }, "", fs.ModeDevice | fs.ModeCharDevice},
		{"char is block", v1.HostPathCharDev, func(p string) error { return unix.Mknod(p, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))) }, "it is a block device", 0},
		{"block", v1.HostPathBlockDev, func(p string) error { return unix.Mknod(p, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))) }, "", fs.ModeDevice},
		{"link is followed", v1.HostPathDirectory, func(p string) error { return os.Symlink(t.TempDir(), p) }, "", fs.ModeDir},
		{"unknown type", "Whatever", touch, "no type", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			path := filepath.Join(t.TempDir(), "it")
			if tt.make != nil {
				if err := tt.make(path); err != nil {
					t.Fatal(err)
				}
			}
			v := volume(podvolumes.HostPath)
			v.PodUID, v.HostPath, v.HostPathType = uid, path, tt.kind
			got, err := h.SetUp(t.Context(), &v)
			if tt.want != "" {
				want := strings.ReplaceAll(tt.want, "no type", "is not a type")
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Fatalf("err = %v, want %q", err, want)
				}
				return
			}
			if err != nil || got != path {
				t.Fatalf("path = %s, %v", got, err)
			}
			if info, err := os.Stat(path); tt.kind != v1.HostPathUnset && (err != nil || info.Mode().Type() != tt.after) {
				t.Errorf("is %v, %v", info, err)
			}
			if err := h.TearDown(t.Context(), uid, v.ID); err != nil {
				t.Fatal(err)
			}
			if tt.kind != v1.HostPathUnset && !exists(path) {
				t.Error("torn down with the volume")
			}
		})
	}
}

func TestLocal(t *testing.T) {
	h := newHost(t)
	disk := t.TempDir()
	write(t, filepath.Join(disk, "keep"), "data")
	gid := int64(3000)
	v := volume(podvolumes.Local)
	v.Dir, v.HostPath, v.FSGroup = "pv-1", disk, &gid
	path := setUp(t, h, v)
	setUp(t, h, v)
	if content(t, filepath.Join(path, "keep")) != "data" || !fsgroup.Owns(filepath.Join(disk, "keep"), gid) || !fsgroup.Has(disk, gid) {
		t.Error("not the volume, or not the group")
	}
	if n := len(mountsBelow(t, string(h.layout))); n != 1 {
		t.Errorf("%d mounts", n)
	}
	found, err := h.Found(t.Context())
	if err != nil || len(found) != 1 || found[0].Name != "data" || !found[0].Complete {
		t.Errorf("found %+v, %v", found, err)
	}
	// A second pod shares it and does not change its group.
	other := int64(4000)
	shared := v
	shared.PodUID, shared.FSGroup, shared.ReadOnly = "other", &other, true
	second, err := h.SetUp(t.Context(), &shared)
	if err != nil {
		t.Fatal(err)
	}
	if !fsgroup.Owns(disk, gid) {
		t.Error("the group changed under the first pod")
	}
	if err := os.WriteFile(filepath.Join(second, "x"), nil, 0o600); err == nil {
		t.Error("written through a read-only mount")
	}
	for _, pod := range []types.UID{uid, "other"} {
		if err := h.TearDown(t.Context(), pod, v.ID); err != nil {
			t.Fatal(err)
		}
	}
	if content(t, filepath.Join(disk, "keep")) != "data" || exists(path) || len(mountsBelow(t, string(h.layout))) != 0 {
		t.Error("data gone, or volume left")
	}
}

// A local volume whose unmount went past us must not lose its data: the folder
// is removed only if it is empty.
func TestLocalNeverEmptied(t *testing.T) {
	h := newHost(t)
	id := podvolumes.ID{Kind: podvolumes.Local, Dir: "pv-1"}
	dir := h.layout.Volume(uid, id)
	if err := makeDir(dir); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "keep"), "data")
	if err := h.TearDown(t.Context(), uid, id); err == nil {
		t.Error("no error")
	}
	if content(t, filepath.Join(dir, "keep")) != "data" {
		t.Error("data gone")
	}
}

func TestTearDownSafety(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "keep"), "data")
	tests := []struct {
		name    string
		plant   func(t *testing.T, volume string)
		mounted bool
	}{
		{"link to a folder", func(t *testing.T, v string) { must(t, os.Symlink(outside, filepath.Join(v, "l"))) }, false},
		{"link to a file", func(t *testing.T, v string) {
			must(t, os.Symlink(filepath.Join(outside, "keep"), filepath.Join(v, "l")))
		}, false},
		{"bind mount of a folder", func(t *testing.T, v string) {
			must(t, os.MkdirAll(filepath.Join(v, "a/b"), 0o755))
			must(t, unix.Mount(outside, filepath.Join(v, "a/b"), "", unix.MS_BIND, ""))
		}, true},
		{"bind mount of a file", func(t *testing.T, v string) {
			write(t, filepath.Join(v, "f"), "")
			must(t, unix.Mount(filepath.Join(outside, "keep"), filepath.Join(v, "f"), "", unix.MS_BIND, ""))
		}, true},
		{"folder without permissions", func(t *testing.T, v string) { must(t, os.MkdirAll(filepath.Join(v, "a/b"), 0o000)) }, false},
		{"pipe and socket", func(t *testing.T, v string) {
			must(t, unix.Mkfifo(filepath.Join(v, "p"), 0o600))
			must(t, unix.Mknod(filepath.Join(v, "s"), unix.S_IFSOCK|0o600, 0))
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			v := volume(podvolumes.EmptyDir)
			tt.plant(t, setUp(t, h, v))
			if tt.mounted {
				if err := h.RemovePod(t.Context(), uid); err == nil || !strings.Contains(err.Error(), "still mounted on") {
					t.Errorf("removal of the pod with the volume in it: %v", err)
				}
			}
			must(t, h.TearDown(t.Context(), uid, v.ID))
			must(t, h.RemovePod(t.Context(), uid))
			if content(t, filepath.Join(outside, "keep")) != "data" {
				t.Error("data outside the volume gone")
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A mount in use is not torn from under its user.
func TestTearDownBusy(t *testing.T) {
	h := newHost(t)
	path := setUp(t, h, memory(0))
	f, err := os.Create(filepath.Join(path, "open"))
	must(t, err)
	if err := h.TearDown(t.Context(), uid, memory(0).ID); err == nil {
		t.Error("no error")
	}
	must(t, f.Close())
	if err := h.TearDown(t.Context(), uid, memory(0).ID); err != nil {
		t.Error(err)
	}
}

func TestBadNames(t *testing.T) {
	h := newHost(t)
	for _, id := range []podvolumes.ID{{Kind: podvolumes.EmptyDir, Dir: "../../x"}, {Kind: podvolumes.EmptyDir, Dir: ""}, {Kind: "..", Dir: "x"}} {
		v := podvolumes.Volume{ID: id, Name: "v", PodUID: uid}
		if _, err := h.SetUp(t.Context(), &v); err == nil {
			t.Errorf("set up %v", id)
		}
		if err := h.TearDown(t.Context(), uid, id); err == nil {
			t.Errorf("torn down %v", id)
		}
	}
	for _, bad := range []types.UID{"", "..", "a/b"} {
		if err := h.RemovePod(t.Context(), bad); err == nil {
			t.Errorf("removed %q", bad)
		}
	}
}
