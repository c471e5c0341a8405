package qgroup

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/btrfs.h, which golang.org/x/sys/unix does not have.
const (
	getFSInfo     = 0x8400941f // BTRFS_IOC_FS_INFO
	getSubvolInfo = 0x81f8943c // BTRFS_IOC_GET_SUBVOL_INFO
	rootInode     = 256        // BTRFS_FIRST_FREE_OBJECTID: of every subvolume's top

	limitReferenced = 1 // BTRFS_QGROUP_LIMIT_MAX_RFER
)

// fsInfo is struct btrfs_ioctl_fs_info_args.
type fsInfo struct {
	_  [2]uint64
	id [16]byte
	_  [992]byte
}

// subvolInfo is struct btrfs_ioctl_get_subvol_info_args.
type subvolInfo struct {
	id uint64
	_  [496]byte
}

func read(dir string) (Usage, error) {
	f, err := os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return Usage{}, ErrNone
	}
	if err != nil {
		return Usage{}, err
	}
	defer f.Close()
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &disk); err != nil {
		return Usage{}, fmt.Errorf("statfs: %w", err)
	}
	var file unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &file); err != nil {
		return Usage{}, fmt.Errorf("stat: %w", err)
	}
	if disk.Type != unix.BTRFS_SUPER_MAGIC || file.Ino != rootInode {
		return Usage{}, ErrNone
	}
	var filesystem fsInfo
	var subvolume subvolInfo
	if err := errors.Join(ioctl(f, getFSInfo, unsafe.Pointer(&filesystem)), ioctl(f, getSubvolInfo, unsafe.Pointer(&subvolume))); err != nil {
		return Usage{}, err
	}
	groups, err := os.OpenRoot(filepath.Join("/sys/fs/btrfs", formatID(filesystem.id), "qgroups"))
	if errors.Is(err, fs.ErrNotExist) {
		return Usage{}, ErrNone // quotas were never enabled
	}
	if err != nil {
		return Usage{}, err
	}
	defer func() { _ = groups.Close() }() // only read
	return readGroup(groups.FS(), subvolume.id)
}

func ioctl(f *os.File, request uintptr, into unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(into)); errno != 0 {
		return fmt.Errorf("ask for the subvolume: %w", errno)
	}
	return nil
}

// formatID writes the number of a filesystem as everybody does.
func formatID(id [16]byte) string {
	s := hex.EncodeToString(id[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// readGroup reads the group of a subvolume in the kernel's folder of them.
func readGroup(groups fs.FS, subvolume uint64) (Usage, error) {
	// Without the flag they are right: it came later than the groups.
	if wrong, err := number(groups, "inconsistent"); err == nil && wrong != 0 {
		return Usage{}, ErrNone
	}
	group := "0_" + strconv.FormatUint(subvolume, 10) + "/"
	referenced, err := number(groups, group+"referenced")
	if errors.Is(err, fs.ErrNotExist) {
		return Usage{}, ErrNone
	}
	if err != nil {
		return Usage{}, err
	}
	// What is written is reserved until it is on the disk, and referenced from then on.
	reserved, err := number(groups, group+"rsv_data")
	if err != nil {
		return Usage{}, err
	}
	used := Usage{Bytes: referenced + reserved}
	flags, err := number(groups, group+"limit_flags")
	if err != nil {
		return Usage{}, err
	}
	if flags&limitReferenced != 0 {
		used.Limit, err = number(groups, group+"max_referenced")
	}
	return used, err
}

func number(groups fs.FS, name string) (uint64, error) {
	data, err := fs.ReadFile(groups, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}
