package deathpoint

import "golang.org/x/sys/unix"

// oldCalls are those that newer architectures do not have, and C programs use.
func oldCalls() map[uintptr]call {
	return map[uintptr]call{
		unix.SYS_MKDIR:   {name: "mkdir"},
		unix.SYS_UNLINK:  {name: "unlink"},
		unix.SYS_RMDIR:   {name: "rmdir"},
		unix.SYS_RENAME:  {name: "rename"},
		unix.SYS_SYMLINK: {name: "symlink", path: 1},
		unix.SYS_LINK:    {name: "link"},
		unix.SYS_CHMOD:   {name: "chmod"},
		unix.SYS_CHOWN:   {name: "chown"},
		unix.SYS_LCHOWN:  {name: "lchown"},
		unix.SYS_CREAT:   {name: "creat"},
		unix.SYS_MKNOD:   {name: "mknod"},
	}
}
