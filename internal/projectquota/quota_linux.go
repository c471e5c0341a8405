package projectquota

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/fs.h and linux/quota.h, which golang.org/x/sys/unix does not have.
const (
	inherit = 0x200 // FS_XFLAG_PROJINHERIT

	getXattr = 0x801c581f // FS_IOC_FSGETXATTR
	setXattr = 0x401c5820 // FS_IOC_FSSETXATTR

	getQuota     = 0x800007 // Q_GETQUOTA
	setQuota     = 0x800008 // Q_SETQUOTA
	projectQuota = 2        // PRJQUOTA
	blockLimits  = 1        // QIF_BLIMITS

	quotaBlock = 1024 // bytes of a unit of a limit
)

// xattr is struct fsxattr.
type xattr struct {
	flags, extentSize, extents, project, cowExtentSize uint32
	_                                                  [8]byte
}

// quota is struct if_dqblk.
type quota struct {
	hardBlocks, softBlocks, bytes  uint64
	hardInodes, softInodes, inodes uint64
	blockTime, inodeTime           uint64
	valid                          uint32
	_                              uint32
}

// A folder is one that is open.
type folder struct{ file *os.File }

// open opens a folder. It follows no link and waits for nothing.
func open(dir string) (folder, error) {
	f, err := os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	return folder{f}, err
}

func (f folder) close() { _ = f.file.Close() } // only read

// above opens the folder that this one is in, wherever it is by now.
func (f folder) above() (folder, error) {
	fd, err := unix.Openat(int(f.file.Fd()), "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return folder{}, fmt.Errorf("open the folder above: %w", err)
	}
	return folder{os.NewFile(uintptr(fd), "..")}, nil
}

// project returns the project of a folder, 0 for none, and its flags.
func (f folder) project() (project, flags uint32, err error) {
	var x xattr
	if err := f.ioctl(getXattr, &x); err != nil {
		return 0, 0, err
	}
	return x.project, x.flags, nil
}

func (f folder) setProject(project, flags uint32) error {
	var x xattr
	if err := f.ioctl(getXattr, &x); err != nil {
		return err
	}
	x.project, x.flags = project, flags
	return f.ioctl(setXattr, &x)
}

func (f folder) ioctl(request uintptr, x *xattr) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.file.Fd(), request, uintptr(unsafe.Pointer(x)))
	switch errno {
	case 0:
		return nil
	case unix.ENOTTY, unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL:
		return ErrNone // no such thing on this filesystem
	default:
		return fmt.Errorf("attributes: %w", errno)
	}
}

// usage returns what a project has. One that nobody has used has nothing.
func (f folder) usage(project uint32) (Usage, error) {
	var q quota
	err := f.quotactl(getQuota, project, &q)
	if errors.Is(err, unix.ENOENT) { // xfs
		err = nil
	}
	if err != nil {
		return Usage{}, err
	}
	limit := q.hardBlocks
	if q.softBlocks > 0 {
		limit = q.softBlocks // statfs shows it first, too
	}
	return Usage{Project: project, Bytes: q.bytes, Inodes: q.inodes, Limit: limit * quotaBlock}, nil
}

// limit sets a project's limit: the soft one is what statfs says, the hard one holds.
func (f folder) limit(project uint32, l Limit) error {
	q := quota{softBlocks: blocks(l.Bytes), valid: blockLimits}
	if l.Bytes > 0 {
		q.hardBlocks = q.softBlocks + blocks(l.Slack)
	}
	return f.quotactl(setQuota, project, &q)
}

func blocks(bytes uint64) uint64 {
	if bytes%quotaBlock > 0 {
		return bytes/quotaBlock + 1
	}
	return bytes / quotaBlock
}

func (f folder) quotactl(command uintptr, project uint32, q *quota) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.file.Fd(), command<<8|projectQuota, uintptr(project), uintptr(unsafe.Pointer(q)), 0, 0)
	switch errno {
	case 0:
		return nil
	case unix.ESRCH, unix.ENOSYS, unix.EOPNOTSUPP, unix.ENOTTY, unix.EINVAL, unix.ENODEV, unix.ENOTBLK:
		return ErrNone // not switched on, or not in this kernel or filesystem
	default:
		return fmt.Errorf("quotactl: %w", errno)
	}
}

func (f folder) isEmpty() (bool, error) {
	_, err := f.file.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}
