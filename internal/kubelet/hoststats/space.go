package hoststats

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// Space returns how many bytes the filesystem that holds path has, and how many
// of them an ordinary user could still write.
func Space(path string) (capacity, available int64, err error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return int64(disk.Blocks) * disk.Frsize, int64(disk.Bavail) * disk.Frsize, nil //nolint:gosec // no disk has 8 EiB
}
