package atomicdir

import (
	"io/fs"
	"syscall"
)

// sameOwner reports whether a file belongs to the given owner and group; nil
// matches any.
func sameOwner(info fs.FileInfo, uid, gid *int64) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	return (uid == nil || int64(stat.Uid) == *uid) && (gid == nil || int64(stat.Gid) == *gid)
}
