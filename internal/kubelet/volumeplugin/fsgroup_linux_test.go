package volumeplugin

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func TestSetGroup(t *testing.T) {
	testenv.Need(t, "root")
	dir, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "other"), "")
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	write(t, filepath.Join(dir, "sub/file"), "")
	write(t, filepath.Join(dir, "run"), "")
	must(t, os.Chmod(filepath.Join(dir, "run"), fs.ModeSetuid|0o755))
	must(t, os.Symlink(filepath.Join(outside, "other"), filepath.Join(dir, "link")))
	must(t, os.Symlink(outside, filepath.Join(dir, "dirlink")))
	must(t, os.Mkdir(filepath.Join(dir, "mnt"), 0o700))
	must(t, unix.Mount(outside, filepath.Join(dir, "mnt"), "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(filepath.Join(dir, "mnt"), 0)) })

	if hasGroup(dir, 5000) {
		t.Error("has the group before")
	}
	must(t, setGroup(t.Context(), dir, 5000))
	if !hasGroup(dir, 5000) {
		t.Error("has not the group after")
	}
	wants := []struct {
		path string
		mode fs.FileMode
		gid  int64
	}{
		{dir, fs.ModeDir | fs.ModeSetgid | 0o775, 5000},
		{filepath.Join(dir, "sub"), fs.ModeDir | fs.ModeSetgid | 0o770, 5000},
		{filepath.Join(dir, "sub/file"), 0o660, 5000},
		{filepath.Join(dir, "run"), fs.ModeSetuid | 0o775, 5000},
		{filepath.Join(outside, "other"), 0o600, 0},
		{outside, fs.ModeDir | 0o755, 0},
	}
	for _, want := range wants {
		info, err := os.Lstat(want.path)
		if err != nil || info.Mode() != want.mode || !ownedBy(want.path, want.gid) {
			t.Errorf("%s: %v, %v, want %v of group %d", want.path, info.Mode(), err, want.mode, want.gid)
		}
	}
}
