package volumeplugin

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

func TestBindSubPath(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "secret"), "s3cret")
	tests := []struct {
		name    string
		prepare func(t *testing.T, volume string)
		path    string
		want    string // content of the part, or of its file "f"; "dir": an empty folder
		wantErr string
	}{
		{"folder", func(t *testing.T, v string) {
			must(t, os.MkdirAll(filepath.Join(v, "a/b"), 0o755))
			write(t, filepath.Join(v, "a/b/f"), "1")
		}, "a/b", "1", ""},
		{"file", func(t *testing.T, v string) { write(t, filepath.Join(v, "x"), "2") }, "x", "2", ""},
		{"missing is made", nil, "new/er", "dir", ""},
		{"link inside", func(t *testing.T, v string) {
			must(t, os.Mkdir(filepath.Join(v, "real"), 0o755))
			write(t, filepath.Join(v, "real/f"), "3")
			must(t, os.Symlink("real", filepath.Join(v, "l")))
		}, "l", "3", ""},
		{"missing below a link inside", func(t *testing.T, v string) {
			must(t, os.Mkdir(filepath.Join(v, "real"), 0o755))
			must(t, os.Symlink("real", filepath.Join(v, "l")))
		}, "l/new", "dir", ""},
		{"absolute link", func(t *testing.T, v string) { must(t, os.Symlink(outside, filepath.Join(v, "l"))) }, "l", "", "leads out"},
		{"relative link out", func(t *testing.T, v string) { must(t, os.Symlink("../../../../../..", filepath.Join(v, "l"))) }, "l/etc", "", "leads out"},
		{"link to a secret", func(t *testing.T, v string) {
			must(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(v, "l")))
		}, "l", "", "leads out"},
		{"magic link", func(t *testing.T, v string) { must(t, os.Symlink("/proc/self/root", filepath.Join(v, "l"))) }, "l/etc/passwd", "", "leads out"},
		{"made below a link out", func(t *testing.T, v string) { must(t, os.Symlink(outside, filepath.Join(v, "l"))) }, "l/new", "", "leads out"},
		{"dots", nil, "a/../../x", "", "must not contain"},
		{"absolute", nil, "/etc", "", "relative"},
		{"below a file", func(t *testing.T, v string) { write(t, filepath.Join(v, "x"), "") }, "x/y", "", "not a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			v := volume(podvolumes.EmptyDir)
			path := setUp(t, h, v)
			must(t, os.Chmod(path, 0o750))
			if tt.prepare != nil {
				tt.prepare(t, path)
			}
			s := SubPath{PodUID: uid, Volume: "data", VolumePath: path, Path: tt.path, Container: "app", Index: 2}
			target, err := h.BindSubPath(t.Context(), s)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("err = %v, want %q", err, tt.wantErr)
				}
				if exists(filepath.Join(outside, "new")) {
					t.Error("made outside the volume")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if again, err := h.BindSubPath(t.Context(), s); err != nil || again != target || len(mountsBelow(t, string(h.layout))) != 1 {
				t.Errorf("again: %s, %v, mounts %v", again, err, mountsBelow(t, string(h.layout)))
			}
			info, err := os.Stat(target)
			must(t, err)
			switch {
			case tt.want == "dir":
				if !info.IsDir() || info.Mode() != fs.ModeDir|0o750 {
					t.Errorf("made as %v", info.Mode())
				}
			case info.IsDir():
				if got := content(t, filepath.Join(target, "f")); got != tt.want {
					t.Errorf("f = %q", got)
				}
			default:
				if got := content(t, target); got != tt.want {
					t.Errorf("content = %q", got)
				}
			}
			for range 2 {
				must(t, h.CleanSubPaths(t.Context(), uid))
			}
			if exists(h.layout.SubPaths(uid)) || len(mountsBelow(t, string(h.layout))) != 0 {
				t.Error("left behind")
			}
			must(t, h.TearDown(t.Context(), uid, v.ID))
		})
	}
}

// A part of a volume that is read-only as a whole is not made.
func TestBindSubPathReadOnly(t *testing.T) {
	h := newHost(t)
	path := setUp(t, h, volume(podvolumes.EmptyDir))
	s := SubPath{PodUID: uid, Volume: "data", VolumePath: path, Path: "new", Container: "app", ReadOnly: true}
	if target, err := h.BindSubPath(t.Context(), s); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %s, %v, want that it is not there", target, err)
	}
	if exists(filepath.Join(path, "new")) || exists(h.layout.SubPaths(uid)) {
		t.Error("something was made")
	}
}

// A part of a volume with an fsGroup is made for that group, too.
func TestBindSubPathGroup(t *testing.T) {
	h := newHost(t)
	path := setUp(t, h, volume(podvolumes.EmptyDir))
	must(t, os.Chown(path, -1, 4711))
	must(t, os.Chmod(path, 0o770|fs.ModeSetgid))
	_, err := h.BindSubPath(t.Context(), SubPath{PodUID: uid, Volume: "data", VolumePath: path, Path: "new/er", Container: "app"})
	must(t, err)
	for _, dir := range []string{"new", "new/er"} {
		info, err := os.Stat(filepath.Join(path, dir))
		must(t, err)
		if gid := info.Sys().(*syscall.Stat_t).Gid; gid != 4711 || info.Mode() != 0o770|fs.ModeSetgid|fs.ModeDir {
			t.Errorf("%s: made with group %d, mode %v", dir, gid, info.Mode())
		}
	}
	must(t, h.CleanSubPaths(t.Context(), uid))
}

// A part that is bound stays what it was when the pod exchanges it for a link.
func TestBindSubPathExchanged(t *testing.T) {
	h := newHost(t)
	path := setUp(t, h, volume(podvolumes.EmptyDir))
	must(t, os.Mkdir(filepath.Join(path, "a"), 0o755))
	write(t, filepath.Join(path, "a/f"), "inside")
	s := SubPath{PodUID: uid, Volume: "data", VolumePath: path, Path: "a", Container: "app"}
	target, err := h.BindSubPath(t.Context(), s)
	must(t, err)
	must(t, os.Rename(filepath.Join(path, "a"), filepath.Join(path, "b")))
	must(t, os.Symlink("/etc", filepath.Join(path, "a")))
	if got := content(t, filepath.Join(target, "f")); got != "inside" {
		t.Errorf("f = %q", got)
	}
	if _, err := h.BindSubPath(t.Context(), s); err == nil {
		t.Error("bound to a link out of the volume")
	}
}

// The key of a content volume is bound anew when the content was replaced, and
// a missing one is an empty folder that is not in the volume.
func TestBindSubPathContent(t *testing.T) {
	h := newHost(t)
	v := volume(podvolumes.Secret)
	v.Files = files("old")
	path := setUp(t, h, v)
	s := SubPath{PodUID: uid, Volume: "data", VolumePath: path, Path: "key", Container: "app", Content: true}
	target, err := h.BindSubPath(t.Context(), s)
	must(t, err)
	v.Files = files("new")
	setUp(t, h, v)
	if got := content(t, target); got != "old" {
		t.Errorf("before: %q", got)
	}
	if _, err = h.BindSubPath(t.Context(), s); err != nil || content(t, target) != "new" {
		t.Errorf("after: %q, %v", content(t, target), err)
	}
	s.Path = "missing"
	target, err = h.BindSubPath(t.Context(), s)
	must(t, err)
	if left, err := os.ReadDir(target); err != nil || len(left) != 0 || exists(filepath.Join(path, "missing")) {
		t.Errorf("missing part: %v, %v", left, err)
	}
	must(t, h.CleanSubPaths(t.Context(), uid))
	must(t, h.TearDown(t.Context(), uid, v.ID))
}
