package initramfs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// TestArchive lets another program unpack what is written here.
func TestArchive(t *testing.T) {
	testenv.Need(t, "busybox")
	var archive bytes.Buffer
	w := NewWriter(&archive)
	for _, err := range []error{
		w.Dir("/empty"),
		w.File("/bin/tool", 0o755, 5, strings.NewReader("12345")),
		w.File("etc/odd", 0o600, 3, strings.NewReader("abc")),
		w.Dir("bin"),
		w.Symlink("/bin/link", "tool"),
		w.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	unpack := exec.CommandContext(t.Context(), "busybox", "cpio", "-i")
	unpack.Dir, unpack.Stdin, unpack.Stderr = dir, &archive, t.Output()
	if err := unpack.Run(); err != nil {
		t.Fatal(err)
	}

	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(data)
		case info.Mode()&os.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		got[strings.TrimPrefix(path, dir+"/")] = info.Mode().String() + " " + content
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"empty":    "drwxr-xr-x ",
		"bin":      "drwxr-xr-x ",
		"bin/tool": "-rwxr-xr-x 12345",
		"bin/link": "Lrwxrwxrwx tool",
		"etc":      "drwxr-xr-x ",
		"etc/odd":  "-rw------- abc",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}
}

func TestShortFile(t *testing.T) {
	w := NewWriter(new(bytes.Buffer))
	if err := w.File("f", 0o644, 10, strings.NewReader("short")); err == nil {
		t.Error("a file with fewer bytes than it says was taken")
	}
	if err := w.File("f", 0o644, 1<<32, strings.NewReader("")); err == nil {
		t.Error("a file that the format cannot hold was taken")
	}
}
