package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestProjectQuota writes past the limit of a folder's project. It is what
// "projectquota" promises to a test.
func TestProjectQuota(t *testing.T) {
	Need(t, "root")
	for i, dir := range QuotaDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			folder, err := os.MkdirTemp(dir, "quota-") //nolint:usetesting // the test's own folder is on another disk
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(folder) })
			project := uint32(1000 + i)
			setProject(t, folder, project)
			dropSysResource(t)
			limitProject(t, dir, project, 1<<20)

			if err := os.WriteFile(filepath.Join(folder, "fits"), make([]byte, 512<<10), 0o600); err != nil {
				t.Errorf("within the limit: %v", err)
			}
			err = os.WriteFile(filepath.Join(folder, "too-much"), make([]byte, 2<<20), 0o600)
			if !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) { // xfs says the latter of projects
				t.Errorf("past the limit: %v, want EDQUOT or ENOSPC", err)
			}
			if err := os.WriteFile(filepath.Join(dir, "outside"), make([]byte, 2<<20), 0o600); err != nil {
				t.Errorf("outside of the project: %v", err)
			}
		})
	}
}

// dropSysResource takes CAP_SYS_RESOURCE, which ext4 lets past every limit, from
// this goroutine's thread. The thread ends with the goroutine.
func dropSysResource(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
}

// fsxattr is struct fsxattr of linux/fs.h.
type fsxattr struct {
	flags, extentSize, extents, project, cowExtentSize uint32
	_                                                  [8]byte
}

const (
	fsGetXattr     = 0x801c581f
	fsSetXattr     = 0x401c5820
	projectInherit = 0x200 // new files get the folder's project
)

func setProject(t *testing.T, folder string, project uint32) {
	t.Helper()
	f, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var attr fsxattr
	for _, request := range []uintptr{fsGetXattr, fsSetXattr} {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(&attr))); errno != 0 {
			t.Fatalf("attributes of %s: %v", folder, errno)
		}
		attr.project, attr.flags = project, attr.flags|projectInherit
	}
}

// dqblk is struct if_dqblk of linux/quota.h.
type dqblk struct {
	hardBlocks, softBlocks, space  uint64 // limits in KiB
	hardInodes, softInodes, inodes uint64
	blockTime, inodeTime           uint64
	valid                          uint32
	_                              uint32
}

func limitProject(t *testing.T, dir string, project uint32, bytes uint64) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const (
		setQuota = 0x800008<<8 | 2 // Q_SETQUOTA of projects
		blocks   = 1               // QIF_BLIMITS
	)
	limit := dqblk{hardBlocks: bytes >> 10, valid: blocks}
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), setQuota, uintptr(project), uintptr(unsafe.Pointer(&limit)), 0, 0)
	if errno != 0 {
		t.Fatalf("limit project %d of %s: %v", project, dir, errno)
	}
}
