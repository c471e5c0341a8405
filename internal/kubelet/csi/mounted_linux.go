package csi

import (
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// mounted reports whether something is mounted on path itself, which may be a
// file. It follows no link and asks no server, and is an error that matches
// fs.ErrNotExist if path is not there.
func mounted(path string) (bool, error) {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat)
	if err != nil {
		return false, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	if stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		infos, err := mount.ParseMountInfo("/proc/self/mountinfo") // kernels before 5.8
		return slices.ContainsFunc(infos, func(i mount.MountInfo) bool { return i.MountPoint == path }), err
	}
	return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}
