package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/diskusage"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/projectquota"
	"github.com/holdfast-dev/holdfast/internal/qgroup"
)

// Measure returns what the volume at path takes, by the best method that there is
// for it. A folder on a filesystem that it shares with others is counted, in the
// background, if the filesystem cannot tell: its use is its own, its size and what is
// free are the filesystem's. ctx ends a count; a call to a device or a server that
// hangs does not return.
func (h *Host) Measure(ctx context.Context, path string) (podvolumes.Usage, error) {
	usage, err := h.measure(ctx, path)
	if err != nil {
		return podvolumes.Usage{}, fmt.Errorf("measure the volume at %s: %w", path, err)
	}
	return usage, nil
}

func (h *Host) measure(ctx context.Context, path string) (podvolumes.Usage, error) {
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return podvolumes.Usage{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if file.Mode&unix.S_IFMT == unix.S_IFBLK {
		return measureDevice(path)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return podvolumes.Usage{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	usage := usageOf(&disk)
	if usage.CapacityBytes == nil && disk.Files == 0 {
		return podvolumes.Usage{}, podvolumes.ErrNoUsage
	}
	own, err := ownFilesystem(path)
	if err != nil {
		return podvolumes.Usage{}, err
	}
	if own {
		usage.Method = podvolumes.ByFilesystem
		return usage, nil
	}
	if file.Mode&unix.S_IFMT == unix.S_IFDIR {
		if quota, ok := h.quota(ctx, path); ok {
			return byQuota(usage, quota), nil
		}
	}
	if disk.Type == unix.BTRFS_SUPER_MAGIC {
		if group, err := qgroup.Read(path); err == nil {
			return bySubvolume(usage, group), nil
		}
	}
	counted, err := count(ctx, path)
	if err != nil {
		return podvolumes.Usage{}, err
	}
	usage.Method, usage.UsedBytes, usage.InodesUsed = podvolumes.ByWalk, &counted.Bytes, &counted.Inodes
	return usage, nil
}

// count counts the files of a volume, without keeping its mount busy: it can be unmounted
// meanwhile.
func count(ctx context.Context, path string) (diskusage.Usage, error) {
	if f, err := detached(path); err == nil {
		defer f.Close()
		path = fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	}
	counted, err := diskusage.Measure(ctx, path+"/.", diskusage.Options{Background: true}) // a hostPath may be a link
	if errors.Is(err, unix.ENOTDIR) {
		counted, err = diskusage.Measure(ctx, path, diskusage.Options{Background: true})
	}
	return counted, err
}

// detached opens a mount of its own of what is mounted at path, which is gone when it is
// closed. There is an error if nothing is mounted there.
func detached(path string) (*os.File, error) {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_NO_AUTOMOUNT, 0, &s); err != nil {
		return nil, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	if s.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 || s.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, unix.EINVAL
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &fs.PathError{Op: "open_tree", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// byQuota puts what the filesystem says of one folder into what it says of itself.
// With a limit statfs has told the limit already, as size.
func byQuota(usage podvolumes.Usage, quota projectquota.Usage) podvolumes.Usage {
	usage.Method, usage.UsedBytes, usage.InodesUsed = podvolumes.ByQuota, &quota.Bytes, &quota.Inodes
	return usage
}

// bySubvolume puts what btrfs says of one subvolume into what it says of itself. statfs
// does not know of the subvolume's limit, and no group counts inodes.
func bySubvolume(usage podvolumes.Usage, group qgroup.Usage) podvolumes.Usage {
	usage.Method, usage.UsedBytes, usage.InodesUsed = podvolumes.ByQuota, &group.Bytes, nil
	if group.Limit > 0 {
		return usage.Within(group.Limit)
	}
	return usage
}

// usageOf is what a filesystem says of itself, without what it keeps for root. One
// that gives out inodes as it needs them says 0 of 0.
func usageOf(disk *unix.Statfs_t) podvolumes.Usage {
	var u podvolumes.Usage
	if disk.Blocks > 0 {
		size := uint64(disk.Frsize) //nolint:gosec // never negative
		u.CapacityBytes, u.AvailableBytes = new(disk.Blocks*size), new(disk.Bavail*size)
		u.UsedBytes = new((disk.Blocks - min(disk.Bfree, disk.Blocks)) * size)
	}
	if disk.Files > 0 {
		u.Inodes, u.InodesFree, u.InodesUsed = new(disk.Files), new(disk.Ffree), new(disk.Files-min(disk.Ffree, disk.Files))
	}
	return u
}

// measureDevice returns a device's size. What of it is in use only its user knows.
func measureDevice(path string) (podvolumes.Usage, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return podvolumes.Usage{}, err
	}
	defer func() { _ = f.Close() }() // only read
	var size uint64
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKGETSIZE64, uintptr(unsafe.Pointer(&size))); errno != 0 {
		return podvolumes.Usage{}, &fs.PathError{Op: "ask for the size", Path: path, Err: errno}
	}
	return podvolumes.Usage{Method: podvolumes.ByDevice, CapacityBytes: &size}, nil
}

// ownFilesystem reports whether the whole of a filesystem is mounted at path, and not
// a part of one.
func ownFilesystem(path string) (bool, error) {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &s); err != nil {
		return false, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	if s.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, nil
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	return wholeMount(string(data), s.Mnt_id), nil
}

// wholeMount reports whether a mount, by its number in a mountinfo file (proc(5)),
// shows its filesystem from its root on.
func wholeMount(mountinfo string, id uint64) bool {
	number := fmt.Sprint(id)
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[0] == number {
			return fields[3] == "/"
		}
	}
	return false
}
