package deathpoint

import (
	"maps"

	"golang.org/x/sys/unix"
)

// A call is a system call that changes files or mounts.
type call struct {
	name string
	path int  // which argument is the path that is shown
	fd   bool // the first argument is a descriptor instead
	data bool // it writes content: it counts only for files of the test
}

// calls are all of them but openat, which changes something with some flags only.
func calls() map[uintptr]call {
	all := map[uintptr]call{
		unix.SYS_MKDIRAT:       {name: "mkdirat", path: 1},
		unix.SYS_MKNODAT:       {name: "mknodat", path: 1},
		unix.SYS_UNLINKAT:      {name: "unlinkat", path: 1},
		unix.SYS_RENAMEAT:      {name: "renameat", path: 1},
		unix.SYS_RENAMEAT2:     {name: "renameat2", path: 1},
		unix.SYS_SYMLINKAT:     {name: "symlinkat", path: 2},
		unix.SYS_LINKAT:        {name: "linkat", path: 1},
		unix.SYS_FCHMOD:        {name: "fchmod", fd: true},
		unix.SYS_FCHMODAT:      {name: "fchmodat", path: 1},
		unix.SYS_FCHMODAT2:     {name: "fchmodat2", path: 1},
		unix.SYS_FCHOWN:        {name: "fchown", fd: true},
		unix.SYS_FCHOWNAT:      {name: "fchownat", path: 1},
		unix.SYS_FTRUNCATE:     {name: "ftruncate", fd: true},
		unix.SYS_TRUNCATE:      {name: "truncate"},
		unix.SYS_FSETXATTR:     {name: "fsetxattr", fd: true},
		unix.SYS_WRITE:         {name: "write", fd: true, data: true},
		unix.SYS_PWRITE64:      {name: "pwrite", fd: true, data: true},
		unix.SYS_MOUNT:         {name: "mount", path: 1},
		unix.SYS_UMOUNT2:       {name: "umount"},
		unix.SYS_MOVE_MOUNT:    {name: "move_mount", path: 3},
		unix.SYS_MOUNT_SETATTR: {name: "mount_setattr", path: 1},
	}
	maps.Copy(all, oldCalls())
	return all
}
