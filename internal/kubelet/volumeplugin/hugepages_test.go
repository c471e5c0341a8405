package volumeplugin

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// TestHugePages needs none: a filesystem of them can be mounted where the
// machine has set none aside.
func TestHugePages(t *testing.T) {
	h := newHost(t)
	const page = 2 << 20
	v := volume(podvolumes.EmptyDir)
	v.Medium, v.PageSize, v.SizeLimit = v1.StorageMediumHugePages, page, 3*page-1
	path := setUp(t, h, v)
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		t.Fatal(err)
	}
	if stat.Type != unix.HUGETLBFS_MAGIC || stat.Bsize != page || stat.Blocks != 3 {
		t.Errorf("type %x, %d blocks of %d bytes; want 3 huge pages", stat.Type, stat.Blocks, stat.Bsize)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("mode = %v, %v", info.Mode(), err)
	}

	// A folder needs no page.
	if err := os.Mkdir(filepath.Join(path, "mine"), 0o700); err != nil {
		t.Fatal(err)
	}
	setUp(t, h, v)
	if _, err := os.Stat(filepath.Join(path, "mine")); err != nil || len(mountsBelow(t, string(h.layout))) != 1 {
		t.Errorf("set up again: %v, mounts %v", err, mountsBelow(t, string(h.layout)))
	}
	if err := h.TearDown(t.Context(), uid, v.ID); err != nil {
		t.Fatal(err)
	}
	if left := mountsBelow(t, string(h.layout)); len(left) > 0 || exists(path) {
		t.Errorf("left: %v", left)
	}

	v.PageSize = 12345
	v.PodUID = uid
	if _, err := h.SetUp(t.Context(), &v); err == nil {
		t.Error("pages of 12345 bytes were mounted")
	}
}
