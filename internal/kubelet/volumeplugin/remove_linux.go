package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxOpen is how many folders of one tree are open at once. A pod can nest
// folders far deeper than a process may have files open.
const maxOpen = 100

// removeTree removes a file or a folder with all that is in it. Links are
// removed, not followed; a folder that something is mounted on is an error, and
// it and what is mounted there stay. It is nil if path is not there. When ctx
// ends, a part is left, for the next try.
func removeTree(ctx context.Context, path string) error {
	parent, err := openAt(unix.AT_FDCWD, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closeFD(parent)
	name := filepath.Base(path)
	for { // each round flattens what was nested too deeply for the one before
		r := remover{top: -1}
		if err := r.remove(ctx, parent, name, path, 0); err != nil || !r.moved {
			return err
		}
	}
}

// remover is one round through a tree. Everything goes by descriptors, so that
// a pod that swaps a folder for a link in between leads nowhere.
type remover struct {
	top   int // the tree's own folder; -1 until it is open
	next  int // number of the next folder moved there
	moved bool
}

// remove removes name in the folder that parent is open on.
func (r *remover) remove(ctx context.Context, parent int, name, path string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return stillMounted(path)
	case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM):
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	if depth >= maxOpen {
		return r.flatten(parent, name, path)
	}
	// The kernel refuses to open the folder if it is a mount point, also of a
	// bind mount from the same filesystem.
	fd, err := openAt(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH)
	switch {
	case errors.Is(err, unix.EXDEV):
		return stillMounted(path)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return immutable(path) // a file, or a link, and it was refused above
	case err != nil:
		return err
	}
	defer closeFD(fd)
	if depth == 0 {
		r.top = fd
	}
	err = eachName(ctx, fd, path, func(name string) error {
		return r.remove(ctx, fd, name, filepath.Join(path, name), depth+1)
	})
	if err != nil {
		return err
	}
	if r.moved && depth == 0 {
		return nil // not empty: the next round follows
	}
	err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.EPERM) {
		return immutable(path)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// flatten moves a folder from deep in the tree to its top, for the next round.
func (r *remover) flatten(parent int, name, path string) error {
	for range 1000 { // names that the pod may have taken
		err := unix.Renameat2(parent, name, r.top, fmt.Sprintf(".deep-%d", r.next), unix.RENAME_NOREPLACE)
		r.next++
		switch {
		case err == nil:
			r.moved = true
			return nil
		case errors.Is(err, unix.EBUSY):
			return stillMounted(path)
		case errors.Is(err, unix.EPERM):
			return immutable(path)
		case !errors.Is(err, unix.EEXIST):
			return &fs.PathError{Op: "move", Path: path, Err: err}
		}
	}
	return &fs.PathError{Op: "move", Path: path, Err: unix.EEXIST}
}

// immutable is the error for what even root may not remove.
func immutable(path string) error {
	return fmt.Errorf("%s cannot be removed, it or its folder is immutable or append-only: take that away (chattr -i -a), and it is removed: %w", path, fs.ErrPermission)
}

// stillMounted is the error for what something is mounted on; it matches EBUSY.
func stillMounted(path string) error { return &mountedError{path} }

type mountedError struct{ path string }

func (e *mountedError) Error() string {
	return fmt.Sprintf("something is still mounted on %s: unmount it, and the folder is removed", e.path)
}

func (e *mountedError) Is(target error) bool { return target == unix.EBUSY }
