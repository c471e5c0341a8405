package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// setGroup gives a tree to a group: the group may read and write everything,
// and what is made in a folder later belongs to the group too; the rules of
// upstream's fsGroup. Links change hands themselves and are not followed. The
// top comes last, so that a change that was cut short is not taken for done
// where only the top is looked at. Other filesystems mounted in the tree stay.
func setGroup(ctx context.Context, path string, gid int64) error {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	g := grouper(gid)
	if err := errors.Join(g.change(ctx, fd, path, 0), unix.Close(fd)); err != nil {
		return fmt.Errorf("give it to fsGroup %d: %w", gid, err)
	}
	return nil
}

// grouper gives files to the group that it is.
type grouper int

// maxDepth is how deep folders may be nested; each level costs an open file.
const maxDepth = 1000

// change changes what fd, an O_PATH descriptor, is open on.
func (g grouper) change(ctx context.Context, fd int, path string, depth int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	isDir := stat.Mode&unix.S_IFMT == unix.S_IFDIR
	if isDir {
		if err := g.entries(ctx, fd, path, depth); err != nil {
			return err
		}
	}
	if stat.Gid != uint32(g) {
		if err := unix.Fchownat(fd, "", -1, int(g), unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "chown", Path: path, Err: err}
		}
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil // a link has no permissions of its own
	}
	mode := stat.Mode&0o7777 | groupBits(isDir)
	// A change of group clears the set-ID bits of files, so the mode is set
	// even if it looks right. An O_PATH descriptor cannot be changed itself;
	// its entry in /proc leads to the very same file.
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode); err != nil {
		return &fs.PathError{Op: "chmod", Path: path, Err: err}
	}
	return nil
}

// entries changes what is in the folder that fd is open on.
func (g grouper) entries(ctx context.Context, fd int, path string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: folders are nested more than %d deep", path, maxDepth)
	}
	return eachName(fd, path, func(name string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		child, err := openAt(fd, name, unix.O_PATH|unix.O_NOFOLLOW, unix.RESOLVE_NO_XDEV|unix.RESOLVE_BENEATH)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EXDEV) {
			return nil // gone meanwhile, or another filesystem
		}
		if err != nil {
			return err
		}
		return errors.Join(g.change(ctx, child, filepath.Join(path, name), depth+1), unix.Close(child))
	})
}

func groupBits(isDir bool) uint32 {
	bits := uint32(0o660)
	if isDir {
		bits |= 0o110 | unix.S_ISGID
	}
	return bits
}

// hasGroup reports whether the top of a tree has been given to a group.
func hasGroup(path string, gid int64) bool {
	info, err := os.Stat(path)
	if err != nil || !ownedBy(path, gid) {
		return false
	}
	return info.Mode().Perm()&0o770 == 0o770 && info.Mode()&fs.ModeSetgid != 0
}

// ownedBy reports whether a folder belongs to a group.
func ownedBy(path string, gid int64) bool {
	var stat unix.Stat_t
	return unix.Stat(path, &stat) == nil && int64(stat.Gid) == gid
}
