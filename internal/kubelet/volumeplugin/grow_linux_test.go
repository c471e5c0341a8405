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
	loop, err := os.Open(device)
	must(t, err)
	defer loop.Close()
	must(t, unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_CAPACITY, 0))
}

// fsSize returns how many bytes the filesystem at path holds.
func fsSize(t *testing.T, path string) uint64 {
	t.Helper()
	var stat unix.Statfs_t
	must(t, unix.Statfs(path, &stat))
	return stat.Blocks * uint64(stat.Bsize)
}

// testGrow has the filesystem on a device grow with it, under its pod.
func testGrow(t *testing.T, fsType string) {
	h, device := newDiskHost(t, 320<<20)
	v := onDisk("pv-1", device)
	v.FSType = fsType
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
	before := fsSize(t, path)
	if err := growTo(400 << 20); !errors.Is(err, podvolumes.ErrCannotGrow) || !strings.Contains(err.Error(), "has 335544320 bytes, and 419430400 are wanted") {
		t.Errorf("a device that is too small: %v", err)
	}
	grow(t, device, 400<<20)
	for range 2 {
		must(t, growTo(400<<20))
	}
	if got := fsSize(t, path); got < before+70<<20 {
		t.Errorf("it has %d bytes, and had %d", got, before)
	}
	if got := content(t, filepath.Join(path, "file")); got != "data" {
		t.Errorf("the file holds %q", got)
	}
}

// TestGrow has no ext4: the kernel lets only who has CAP_SYS_RESOURCE grow one
// that is mounted. See TestGrowExt4.
func TestGrow(t *testing.T) {
	for _, fsType := range []string{"xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) { testGrow(t, fsType) })
	}
}

// A folder is as large as its disk, and other kinds cannot grow.
func TestGrowNothing(t *testing.T) {
	h := newHost(t)
	v := onDisk("pv-1", t.TempDir())
	v.PodUID, v.GrowTo = uid, 1<<40
	must(t, h.Grow(t.Context(), &v))
	v.Kind = podvolumes.HostPath
	if err := h.Grow(t.Context(), &v); !errors.Is(err, podvolumes.ErrCannotGrow) {
		t.Errorf("hostPath: %v", err)
	}
}

// What resize2fs says of a permission is told with its name, and what to do.
func TestWhyNotGrown(t *testing.T) {
	for name, test := range map[string]struct{ said, want string }{
		"no permission": {
			"resize2fs 1.47.0\nresize2fs: Permission denied to resize filesystem\n",
			"while it is mounted that takes CAP_SYS_RESOURCE, which this node does not have; end its pods and run resize2fs yourself: resize2fs 1.47.0 resize2fs: Permission denied to resize filesystem",
		},
		"anything else": {"xfs_growfs: no such\ndevice", "xfs_growfs: no such device"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := whyNotGrown(test.said); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
