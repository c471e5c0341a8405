package hoststats

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// Space returns how many bytes the filesystem that holds path has for ordinary
// users, and how many of them they could still write.
func Space(path string) (capacity, available int64, err error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(blocks(&disk)) * disk.Frsize, int64(disk.Bavail) * disk.Frsize, nil //nolint:gosec // no disk has 8 EiB
}

// blocks returns how many blocks of a filesystem ordinary users have or could
// have, as df counts them: one that keeps many for root is not full because of
// that.
func blocks(disk *unix.Statfs_t) uint64 {
	return disk.Blocks - min(disk.Bfree, disk.Blocks) + disk.Bavail
}
