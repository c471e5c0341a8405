package volumeplugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// grow makes a loop device larger, as an administrator does a disk.
func grow(t *testing.T, device string, size int64) {
	t.Helper()
	backing := strings.TrimSpace(content(t, "/sys/block/"+filepath.Base(device)+"/loop/backing_file"))
	must(t, os.Truncate(backing, size))
	tool(t, "losetup", "--set-capacity", device)
}

// TestGrow needs xfs here: the kernel lets only who has CAP_SYS_RESOURCE grow an
// ext4 that is mounted.
func TestGrow(t *testing.T) {
	h, device := newDiskHost(t, 320<<20)
	v := onDisk("pv-1", device)
	v.FSType = "xfs"
	growTo := func(size int64) error {
		t.Helper()
		v.PodUID, v.GrowTo = uid, size
		return h.Grow(t.Context(), &v)
	}
	if err := growTo(320 << 20); err == nil || !strings.Contains(err.Error(), "is not mounted") {
		t.Errorf("not mounted: %v", err)
	}
	path, err := setUpFor(t, h, uid, v)
	must(t, err)
	write(t, filepath.Join(path, "file"), "data")
	size := func() uint64 {
		t.Helper()
		var stat unix.Statfs_t
		must(t, unix.Statfs(path, &stat))
		return stat.Blocks * uint64(stat.Bsize)
	}
	before := size()
	if err := growTo(400 << 20); !errors.Is(err, podvolumes.ErrCannotGrow) || !strings.Contains(err.Error(), "has 335544320 bytes, and 419430400 are wanted") {
		t.Errorf("a device that is too small: %v", err)
	}
	grow(t, device, 400<<20)
	for range 2 {
		must(t, growTo(400<<20))
	}
	if got := size(); got < before+70<<20 {
		t.Errorf("it has %d bytes, and had %d", got, before)
	}
	if got := content(t, filepath.Join(path, "file")); got != "data" {
		t.Errorf("the file holds %q", got)
	}

	v.HostPath = t.TempDir()
	must(t, growTo(1<<40))
	v.Kind = podvolumes.HostPath
	if err := growTo(1); !errors.Is(err, podvolumes.ErrCannotGrow) {
		t.Errorf("hostPath: %v", err)
	}
}
