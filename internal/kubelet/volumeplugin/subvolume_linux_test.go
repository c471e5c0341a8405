package volumeplugin

import (
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// TestSubvolume holds that a volume that is a subvolume of a btrfs with quotas, such as a
// hostPath or local one, is not walked, and has the size of its limit.
func TestSubvolume(t *testing.T) {
	testenv.Need(t, "root", "mkfs.btrfs", "btrfs")
	device, disk := testenv.LoopDevice(t, 256<<20), t.TempDir()
	command := func(argv ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", argv, err, out)
		}
	}
	command("mkfs.btrfs", "-q", device)
	if err := unix.Mount(device, disk, "btrfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	sub := filepath.Join(disk, "sub")
	command("btrfs", "subvolume", "create", sub)
	fill(t, filepath.Join(sub, "f"), 1<<20)
	if u := measured(t, sub); u.Method != podvolumes.ByWalk || *u.UsedBytes < 1<<20 {
		t.Errorf("without quotas: %s, %d bytes", u.Method, *u.UsedBytes)
	}
	unix.Sync() // what was written before there were quotas
	command("btrfs", "quota", "enable", disk)
	command("btrfs", "quota", "rescan", "-w", disk)
	u := measured(t, sub)
	if u.Method != podvolumes.ByQuota || *u.UsedBytes < 1<<20 || *u.UsedBytes > 2<<20 || *u.CapacityBytes != 256<<20 || u.InodesUsed != nil {
		t.Errorf("%s: %d of %d bytes, inodes %v", u.Method, *u.UsedBytes, *u.CapacityBytes, u.InodesUsed)
	}
	command("btrfs", "qgroup", "limit", "4M", sub)
	u = measured(t, sub)
	if *u.CapacityBytes != 4<<20 || *u.AvailableBytes != *u.CapacityBytes-*u.UsedBytes {
		t.Errorf("with a limit: %d of %d bytes, %d left", *u.UsedBytes, *u.CapacityBytes, *u.AvailableBytes)
	}
}
