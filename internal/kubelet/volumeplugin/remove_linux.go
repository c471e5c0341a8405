package volumeplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// removeTree removes a file or a folder with all that is in it. Links are
// removed, not followed; a folder that something is mounted on is an error, and
// it and what is mounted there stay. It is nil if path is not there.
func removeTree(path string) error {
	parent, err := openAt(unix.AT_FDCWD, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closeFD(parent)
	return removeAt(parent, filepath.Base(path), path)
}

// removeAt removes name in the folder that parent is open on. Everything goes
// by descriptors, so that a pod that swaps a folder for a link in between
// leads nowhere.
func removeAt(parent int, name, path string) error {
	err := unix.Unlinkat(parent, name, 0)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return stillMounted(path)
	case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM):
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	// The kernel refuses to open the folder if it is a mount point, also of a
	// bind mount from the same filesystem.
	fd, err := openAt(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH)
	switch {
	case errors.Is(err, unix.EXDEV):
		return stillMounted(path)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if err := removeEntries(fd, path); err != nil {
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// removeEntries empties the folder that fd is open on, and closes fd.
func removeEntries(fd int, path string) error {
	list, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	names, err := readNames(list, path)
	for _, name := range names {
		err = errors.Join(err, removeAt(fd, name, filepath.Join(path, name)))
	}
	return errors.Join(err, unix.Close(fd))
}

func stillMounted(path string) error {
	return fmt.Errorf("something is still mounted on %s: unmount it, and the folder is removed", path)
}
