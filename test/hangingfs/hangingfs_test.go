package hangingfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func TestFilesystem(t *testing.T) {
	testenv.Need(t, "root")
	dir := t.TempDir()
	f := Mount(t, dir)
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o750); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a/b/file")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(file, 0o640), os.Lchown(file, 1, 2)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o640 || info.Size() != 7 {
		t.Errorf("%v, %v", info, err)
	}
	if names, err := os.ReadDir(filepath.Join(dir, "a")); err != nil || len(names) != 1 || !names[0].IsDir() {
		t.Errorf("%v, %v", names, err)
	}
	if err := os.Remove(filepath.Join(dir, "a/b")); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("removed a folder with a file: %v", err)
	}

	f.Hang()
	read := make(chan string)
	go func() {
		content, _ := os.ReadFile(file)
		read <- string(content)
	}()
	f.AwaitAsked(t)
	select {
	case content := <-read:
		t.Fatalf("it answered %q though it hangs", content)
	case <-time.After(50 * time.Millisecond):
	}
	f.Answer()
	if got := <-read; got != "content" {
		t.Errorf("read %q", got)
	}
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
}

// A test that ends while somebody waits lets go of them.
func TestEndWhileSomebodyWaits(t *testing.T) {
	testenv.Need(t, "root")
	// Another process that looks at all mounts may be who asks: then ours came too late.
	for range 20 {
		err := endWhileSomebodyWaits(t)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			t.Error("who waited has an answer")
		}
		return
	}
	t.Error("nobody waited when it ended")
}

func endWhileSomebodyWaits(t *testing.T) error {
	dir := t.TempDir()
	asked := make(chan error, 1)
	t.Run("in it", func(t *testing.T) {
		f := Mount(t, dir)
		f.Hang()
		go func() {
			_, err := os.Stat(filepath.Join(dir, "file"))
			asked <- err
		}()
		f.AwaitAsked(t)
	})
	return <-asked
}
