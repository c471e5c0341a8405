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
	return Usage{Project: project, Bytes: q.bytes, Inodes: q.inodes, Limit: q.hardBlocks * quotaBlock}, nil
}

// limit sets a project's limit, rounded up to whole units; 0 is none.
func (f folder) limit(project uint32, bytes uint64) error {
	blocks := bytes / quotaBlock
	if bytes%quotaBlock > 0 {
		blocks++
	}
	return f.quotactl(setQuota, project, &quota{hardBlocks: blocks, valid: blockLimits})
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
