package podfolder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

func newFolders(t *testing.T) (f *Folders, root string) {
	t.Helper()
	root = t.TempDir()
	f = New(filepath.Join(root, "kubelet"), filepath.Join(root, "logs"))
	return f, root
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestHostsFileIsTheSame holds that a new content goes into the file that
// containers have mounted.
func TestHostsFileIsTheSame(t *testing.T) {
	f, _ := newFolders(t)
	if err := f.Make("u"); err != nil {
		t.Fatal(err)
	}
	var inodes []uint64
	for _, text := range []string{"longer text", "short"} {
		path, err := f.WriteHosts("u", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o644 {
			t.Errorf("got mode %v, want 0644", got)
		}
		inodes = append(inodes, info.Sys().(*syscall.Stat_t).Ino)
	}
	if inodes[0] != inodes[1] {
		t.Error("the file was replaced")
	}
}

func TestTerminationLog(t *testing.T) {
	f, root := newFolders(t)
	outside := filepath.Join(root, "outside")
	write(t, outside, "keep")
	dir := podfiles.ContainerFolder(filepath.Join(root, "kubelet"), "u", "c")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "3")); err != nil {
		t.Fatal(err)
	}
	path, err := f.TerminationLog("u", "c", 3)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm() != 0o666 || info.Size() != 0 {
		t.Errorf("got %v of %d bytes, want an empty file for everybody", info.Mode(), info.Size())
	}
	if got := read(t, outside); got != "keep" {
		t.Errorf("the link was followed: %q", got)
	}
}

func TestLogs(t *testing.T) {
	f, root := newFolders(t)
	if _, ok := f.LastAttempt("ns", "p", "u", "c"); ok {
		t.Error("a container without logs has an attempt")
	}
	if err := f.MakeLogs("ns", "p", "u", "c"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "logs", "ns_p_u", "c")
	for _, name := range []string{"0.log", "1.log", "1.log.20260102-030405", "1.log.20260101-030405.gz", "10.log", "x.log", "-3.log"} {
		write(t, filepath.Join(dir, name), "")
	}
	if last, ok := f.LastAttempt("ns", "p", "u", "c"); !ok || last != 10 {
		t.Errorf("got %d %v, want 10", last, ok)
	}
	if err := f.RemoveLog(filepath.Join(dir, "1.log")); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff(left, []string{"-3.log", "0.log", "10.log", "x.log"}); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	if err := f.RemoveLog(filepath.Join(root, "logs", "..", "kubelet", "x")); err == nil {
		t.Error("a log outside the logs was removed")
	}
	if err := f.RemoveLogs("ns", "p", "u"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "logs", "ns_p_u")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

func TestNamesThatLeadOut(t *testing.T) {
	f, _ := newFolders(t)
	for _, uid := range []types.UID{"", ".", "..", "../x", "a/b", "/"} {
		_, hosts := f.WriteHosts(uid, nil)
		_, termination := f.TerminationLog(uid, "c", 0)
		for what, err := range map[string]error{
			"Make": f.Make(uid), "WriteHosts": hosts, "TerminationLog": termination,
			"MakeLogs": f.MakeLogs("ns", "p", uid, "c"), "RemoveLogs": f.RemoveLogs("ns", "p", uid),
		} {
			if err == nil {
				t.Errorf("%s took %q", what, uid)
			}
		}
	}
	if err := f.RemoveLogs("..", "..", "u"); err == nil {
		t.Error("RemoveLogs took ..")
	}
}

func TestReadIn(t *testing.T) {
	f, root := newFolders(t)
	dir := filepath.Join(root, "volume")
	write(t, filepath.Join(root, "outside"), "secret")
	write(t, filepath.Join(dir, "sub", "file"), "text")
	if err := errors.Join(
		os.Symlink("sub/file", filepath.Join(dir, "inside")), os.Symlink("../outside", filepath.Join(dir, "out")),
		os.Symlink(filepath.Join(root, "outside"), filepath.Join(dir, "absolute")), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"sub/file": "text", "inside": "text", "out": "", "absolute": "", "pipe": "", "sub": "", "../outside": "", "none": "",
	} {
		got, err := f.ReadIn(dir, name, 4)
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
		if name == "none" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a missing file: %v", err)
		}
	}
	if _, err := f.ReadIn(dir, "sub/file", 3); err == nil {
		t.Error("a file longer than the limit is read")
	}
}
