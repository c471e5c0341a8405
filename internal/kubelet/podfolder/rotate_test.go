package podfolder

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestRotatedLogs(t *testing.T) {
	f, root := newFolders(t)
	logs := filepath.Join(root, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.MakeLogs("default", "web", "uid", "app"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(logs, "default_web_uid", "app")
	path := filepath.Join(dir, "0.log")
	if _, err := f.LogSize(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no log: %v", err)
	}
	for name, text := range map[string]string{"0.log": "current", "1.log": "another's", "1.log.20260101-000000": "another's"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if size, err := f.LogSize(path); err != nil || size != 7 {
		t.Errorf("size %d, %v; want 7", size, err)
	}
	older := path + ".20260101-000000"
	if err := f.RenameLog(path, older); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("new"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := f.RenameLog(older, path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("rename over a log: %v, want it refused", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "new" {
		t.Errorf("the new log holds %q, %v", text, err)
	}
	if err := f.CompressLog(older); err != nil {
		t.Fatal(err)
	}
	rotated, err := f.RotatedLogs(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rotated, []string{older + ".gz"}); diff != "" {
		t.Error(diff)
	}
	if got := unzip(t, older+".gz"); got != "current" {
		t.Errorf("compressed %q", got)
	}
	if info, err := os.Stat(older + ".gz"); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v; want that of the log", info.Mode(), err)
	}
	for range 2 { // gone is gone
		if err := f.RemoveFile(older + ".gz"); err != nil {
			t.Error(err)
		}
	}
}

func unzip(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLogsStayInTheirFolder has paths and links that lead out of the folder of
// logs: nothing outside is read or changed.
func TestLogsStayInTheirFolder(t *testing.T) {
	f, root := newFolders(t)
	logs := filepath.Join(root, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(logs, "0.log")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(logs, "dir")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{outside, filepath.Join(logs, "..", "x"), filepath.Join(logs, "0.log"), filepath.Join(logs, "dir", "secret")} {
		if _, err := f.LogSize(path); err == nil {
			t.Errorf("size of %s was told", path)
		}
		if err := f.CompressLog(path); err == nil {
			t.Errorf("%s was compressed", path)
		}
	}
	if err := f.RemoveFile(filepath.Join(logs, "dir", "secret")); err == nil {
		t.Error("a file outside was removed")
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "secret" {
		t.Errorf("the file outside holds %q, %v", text, err)
	}
}

func TestSweepLogs(t *testing.T) {
	f, root := newFolders(t)
	logs := filepath.Join(root, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"default_web_kept", "default_web_gone", "default_web", "_", "__", "lost+found"} {
		if err := os.MkdirAll(filepath.Join(logs, name, "app"), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.SweepLogs(func(uid types.UID) bool { return uid == "kept" }); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(logs)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(got, []string{"_", "__", "default_web", "default_web_kept", "lost+found"}); diff != "" {
		t.Error(diff)
	}
}
