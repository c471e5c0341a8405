package fsgroup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls that are made for every file take its name where the kernel
// itself wrote it. Those of package unix copy each name each time, which costs a tenth of
// the whole.

// A cname is the name of a file, with a zero byte at its end.
type cname []byte

// itself is the name of what a descriptor is open on.
var itself = cname{0}

func nameOf(s string) cname { return append(cname(s), 0) }

func (n cname) String() string { return unix.ByteSliceToString(n) }

// A listing is a part of a folder's list, as the kernel wrote it.
type listing []byte

// buffers hold what the kernel lists of a folder.
var buffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// list returns the next part of the list of the folder that fd is open on; it is
// empty at the end.
func list(fd int) (listing, error) {
	buffer := buffers.Get().(*[16 << 10]byte)
	defer buffers.Put(buffer)
	for {
		n, err := unix.Getdents(fd, buffer[:])
		switch {
		case err == nil:
			return bytes.Clone(buffer[:n]), nil
		case !errors.Is(err, unix.EINTR):
			return nil, err
		}
	}
}

// Where an entry of a list, struct linux_dirent64, has what.
const (
	lengthAt = 16 // of the entry, in bytes
	nameAt   = 19
)

// names yields each name but "." and "..".
func (l listing) names(yield func(cname) bool) {
	for len(l) > nameAt {
		length := int(binary.NativeEndian.Uint16(l[lengthAt:]))
		name := cname(l[nameAt:length])
		l = l[length:]
		if !isDots(name) && !yield(name) {
			return
		}
	}
}

func isDots(name cname) bool {
	return name[0] == '.' && (name[1] == 0 || name[1] == '.' && name[2] == 0)
}

const wantedOfStat = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_NLINK | unix.STATX_UID | unix.STATX_GID

// statAt looks at name in the folder that dir is open on, and follows no link.
func statAt(dir int, name cname, stat *unix.Statx_t) error {
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_EMPTY_PATH
	_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(unsafe.SliceData(name))),
		flags, wantedOfStat, uintptr(unsafe.Pointer(stat)), 0)
	return failed(errno)
}

// openAt opens name in the folder that dir is open on.
func openAt(dir int, name cname, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(dir), uintptr(unsafe.Pointer(unsafe.SliceData(name))),
			uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		if errno != unix.EINTR && errno != unix.EAGAIN { // EAGAIN: something was renamed meanwhile
			return int(fd), failed(errno)
		}
	}
}

// chownAt gives name in the folder that dir is open on to a group.
func chownAt(dir int, name cname, gid uint32) error {
	const sameOwner = ^uintptr(0)
	_, _, errno := unix.Syscall6(unix.SYS_FCHOWNAT, uintptr(dir), uintptr(unsafe.Pointer(unsafe.SliceData(name))),
		sameOwner, uintptr(gid), unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH, 0)
	return failed(errno)
}

// chmodAt gives name in the folder that dir is open on permissions. It is
// EOPNOTSUPP of a link, and ENOSYS before Linux 6.6.
func chmodAt(dir int, name cname, mode uint32) error {
	_, _, errno := unix.Syscall6(unix.SYS_FCHMODAT2, uintptr(dir), uintptr(unsafe.Pointer(unsafe.SliceData(name))),
		uintptr(mode), unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH, 0, 0)
	return failed(errno)
}

func failed(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// closeFD closes a descriptor that nothing was written through.
func closeFD(fd int) { _ = unix.Close(fd) }
