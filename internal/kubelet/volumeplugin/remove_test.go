package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// A pod can nest folders deeper than paths and open files go. In memory,
// because a disk takes its time over thousands of folders.
func TestRemoveDeep(t *testing.T) {
	h := newHost(t)
	tree := filepath.Join(setUp(t, h, memory(0)), "tree")
	must(t, os.Mkdir(tree, 0o700))
	fd, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for range 5000 {
		must(t, unix.Mkdirat(fd, "deep", 0o700))
		must(t, unix.Mkdirat(fd, ".deep-1", 0o700))
		next, err := unix.Openat(fd, "deep", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
	}
	must(t, unix.Close(fd))
	must(t, removeTree(t.Context(), tree))
	if exists(tree) {
		t.Error("still there")
	}
}

func TestTearDownManyFiles(t *testing.T) {
	h := newHost(t)
	v := volume(podvolumes.EmptyDir)
	path := setUp(t, h, v)
	for i := range 3000 {
		write(t, filepath.Join(path, fmt.Sprint(i)), "")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := removeTree(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	must(t, h.TearDown(t.Context(), uid, v.ID))
}

// endsAfter is a context that ends when it was asked so many times.
type endsAfter struct {
	context.Context //nolint:containedctx // it is a context
	asks            int
}

func (e *endsAfter) Err() error {
	if e.asks--; e.asks < 0 {
		return context.Canceled
	}
	return nil
}

// A removal that is cut short stops at once, and the next one goes on with what
// is left.
func TestRemoveCutShort(t *testing.T) {
	h := newHost(t)
	tree := filepath.Join(setUp(t, h, memory(0)), "tree")
	must(t, os.Mkdir(tree, 0o700))
	const files, asks = 20000, 5000
	for i := range files {
		must(t, unix.Mknod(filepath.Join(tree, fmt.Sprint(i)), unix.S_IFREG|0o600, 0))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := removeTree(&endsAfter{ctx, asks}, tree); !errors.Is(err, context.Canceled) {
		t.Errorf("cut short: %v", err)
	}
	left, err := os.ReadDir(tree)
	must(t, err)
	if len(left) != files-asks {
		t.Errorf("%d files left, want %d", len(left), files-asks)
	}
	must(t, removeTree(t.Context(), tree))
	if exists(tree) {
		t.Error("still there")
	}
}

// What even root may not remove is named, with what helps, and nothing else
// stays because of it.
func TestRemoveImmutable(t *testing.T) {
	h := newHost(t)
	v := volume(podvolumes.EmptyDir)
	for name, flag := range map[string]int{"immutable": unix.STATX_ATTR_IMMUTABLE, "append-only": unix.STATX_ATTR_APPEND} {
		for _, inFolder := range []bool{false, true} {
			path := setUp(t, h, v)
			must(t, os.MkdirAll(filepath.Join(path, "sub/fixed"), 0o700))
			write(t, filepath.Join(path, "sub/fixed/file"), "")
			write(t, filepath.Join(path, "sub/other"), "")
			fixed := filepath.Join(path, "sub/fixed/file")
			if inFolder {
				fixed = filepath.Dir(fixed)
			}
			free := setFlag(t, fixed, flag)
			err := h.TearDown(t.Context(), uid, v.ID)
			if err == nil || !strings.Contains(err.Error(), filepath.Join(path, "sub/fixed/file")+" cannot be removed") || !strings.Contains(err.Error(), "chattr -i -a") {
				t.Errorf("%s, of the folder %v: %v", name, inFolder, err)
			}
			if exists(filepath.Join(path, "sub/other")) {
				t.Errorf("%s: another file is left", name)
			}
			free()
			must(t, h.TearDown(t.Context(), uid, v.ID))
		}
	}
}

// setFlag sets a flag of chattr(1) and returns what takes it away again.
func setFlag(t *testing.T, path string, flag int) (free func()) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	must(t, err)
	must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags)|flag))
	free = sync.OnceFunc(func() {
		must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags)))
		must(t, f.Close())
	})
	t.Cleanup(free)
	return free
}
