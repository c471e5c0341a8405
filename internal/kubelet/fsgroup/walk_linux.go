package fsgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// inTree keeps what is opened in a folder: no link is followed, no mount entered.
const inTree = unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH

// top changes the whole tree.
func (s *setter) top(path string) {
	fd, err := openAt(unix.AT_FDCWD, nameOf(path), unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		s.fail(&fs.PathError{Op: "open", Path: path, Err: err})
		return
	}
	defer closeFD(fd)
	var stat unix.Statx_t
	if err := statAt(fd, itself, &stat); err != nil {
		s.fail(&fs.PathError{Op: "stat", Path: path, Err: err})
		return
	}
	if !isFolder(&stat) {
		s.files.Add(1)
		s.settle(path, itself, s.change(fd, itself, &stat))
		return
	}
	folder, err := openAt(fd, nameOf("."), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		s.fail(&fs.PathError{Op: "open", Path: path, Err: err})
		return
	}
	s.folder(folder, path, 0)
}

// folder changes all that is in the folder that fd is open on, then the folder,
// and closes fd.
func (s *setter) folder(fd int, path string, depth int) {
	defer closeFD(fd)
	var stat unix.Statx_t
	if err := statAt(fd, itself, &stat); err != nil {
		s.fail(&fs.PathError{Op: "stat", Path: path, Err: err})
		return
	}
	w := walker{setter: s, fd: fd, path: path, depth: depth, private: stat.Uid == 0 && stat.Mode&0o022 == 0}
	now := w.read()
	for len(now) > 0 && !s.ended.Load() {
		names, next := now, w.read()
		if len(next) > 0 {
			w.share(func() { w.entries(names) })
		} else {
			w.entries(names) // the last part, of most folders the only one
		}
		now = next
	}
	w.wait()
	if s.ended.Load() {
		return
	}
	s.files.Add(1)
	s.settle(path, itself, s.change(fd, itself, &stat))
}

// walker is one folder whose entries are changed, by one goroutine or more.
type walker struct {
	*setter
	fd    int
	path  string
	depth int
	// private says that nobody but root can exchange what is in the folder, so a
	// name means one file from one call to the next. The folder gets the group's
	// permissions only after what is in it.
	private bool
	others  sync.WaitGroup
	shared  atomic.Bool // some of the work with others
}

// share has work done by another goroutine if one may be had, or does it now.
func (w *walker) share(work func()) {
	select {
	case w.places <- struct{}{}:
		w.shared.Store(true)
		w.others.Go(func() {
			work()
			<-w.places
		})
	default:
		work()
	}
}

// wait waits for the goroutines that work was shared with. The one that waits
// gives its own place away meanwhile.
func (w *walker) wait() {
	if !w.shared.Load() {
		return
	}
	<-w.places
	w.others.Wait()
	w.places <- struct{}{}
}

// read returns the next part of the folder's list; an empty one after the last.
func (w *walker) read() listing {
	part, err := list(w.fd)
	if err != nil {
		w.fail(&fs.PathError{Op: "list", Path: w.path, Err: err})
	}
	return part
}

// entries changes what has the names of a part.
func (w *walker) entries(part listing) {
	wrong, seen := false, int64(0)
	for name := range part.names {
		if w.ended.Load() {
			break
		}
		is := w.entry(name, wrong)
		wrong = is == changed
		if is != elsewhere {
			seen++
		}
	}
	w.files.Add(seen)
}

// An outcome is what became of one entry.
type outcome int

const (
	elsewhere outcome = iota // nothing: it is gone, of another filesystem or a folder, which counts itself
	right                    // it was as it should be
	changed                  // it was not
)

// entry changes one of them. guess says that it probably has to, as with the one
// before: then a look that the change itself takes anyway is saved.
func (w *walker) entry(name cname, guess bool) outcome {
	if guess && !w.private {
		return w.opened(name)
	}
	var stat unix.Statx_t
	err := statAt(w.fd, name, &stat)
	switch {
	case errors.Is(err, unix.ENOENT), isMount(&stat):
		return elsewhere
	case err != nil:
		w.fail(&fs.PathError{Op: "stat", Path: w.pathOf(name), Err: err})
		return elsewhere
	case isFolder(&stat):
		return w.opened(name)
	case stat.Gid == w.gid && missing(&stat) == 0:
		return right
	case w.private && stat.Nlink == 1:
		w.settle(w.path, name, w.change(w.fd, name, &stat))
		return changed
	}
	return w.opened(name)
}

// opened changes an entry by a descriptor: who exchanges it for something else
// has that changed, in the same folder and as it is.
func (w *walker) opened(name cname) outcome {
	fd, err := openAt(w.fd, name, unix.O_PATH|unix.O_NOFOLLOW, inTree)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EXDEV):
		return elsewhere
	case err != nil:
		w.fail(&fs.PathError{Op: "open", Path: w.pathOf(name), Err: err})
		return elsewhere
	}
	defer closeFD(fd)
	var stat unix.Statx_t
	if err := statAt(fd, itself, &stat); err != nil {
		w.fail(&fs.PathError{Op: "stat", Path: w.pathOf(name), Err: err})
		return elsewhere
	}
	if isFolder(&stat) {
		w.subfolder(fd, w.pathOf(name))
		return elsewhere
	}
	if stat.Nlink > 1 {
		// Another goroutine may be at the same file by another name, between its
		// change of group, which clears the set-ID bits, and that of the bits.
		w.links.Lock()
		defer w.links.Unlock()
		if err := statAt(fd, itself, &stat); err != nil {
			w.fail(&fs.PathError{Op: "stat", Path: w.pathOf(name), Err: err})
			return elsewhere
		}
	}
	if stat.Gid == w.gid && missing(&stat) == 0 {
		return right
	}
	w.settle(w.path, name, w.change(fd, itself, &stat))
	return changed
}

// subfolder changes a folder in this one, of which fd is an O_PATH descriptor.
func (w *walker) subfolder(fd int, path string) {
	if w.depth >= maxDepth {
		w.fail(fmt.Errorf("%s: folders are nested more than %d deep", path, maxDepth))
		return
	}
	own, err := openAt(fd, nameOf("."), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		w.fail(&fs.PathError{Op: "open", Path: path, Err: err})
		return
	}
	w.share(func() { w.folder(own, path, w.depth+1) })
}

func (w *walker) pathOf(name cname) string { return filepath.Join(w.path, name.String()) }

func isFolder(stat *unix.Statx_t) bool { return stat.Mode&unix.S_IFMT == unix.S_IFDIR }

// isMount reports whether something is mounted on what was looked at; kernels
// before 5.8 do not tell.
func isMount(stat *unix.Statx_t) bool { return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 }

// missing returns the permissions that a file has to get.
func missing(stat *unix.Statx_t) uint32 {
	bits := uint32(0o660)
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return 0 // a link has no permissions of its own
	case unix.S_IFDIR:
		bits |= 0o110 | unix.S_ISGID
	}
	return bits &^ uint32(stat.Mode)
}

// change changes name in the folder that fd is open on, or what fd is open on if
// it is itself. It is as stat says.
func (s *setter) change(fd int, name cname, stat *unix.Statx_t) error {
	again := missing(stat) != 0
	if stat.Gid != s.gid {
		if err := chownAt(fd, name, s.gid); err != nil {
			return err
		}
		// That clears the set-ID bits of a file.
		again = again || stat.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && !isFolder(stat)
	}
	if !again || stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	mode := uint32(stat.Mode)&0o7777 | missing(stat)
	err := chmodAt(fd, name, mode)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return chmodBefore(fd, name, mode)
	}
	return err
}

// chmodBefore is the change of permissions for kernels before 6.6.
func chmodBefore(fd int, name cname, mode uint32) error {
	if name.String() != "" {
		return unix.Fchmodat(fd, name.String(), mode, 0) // it is no link, and nobody exchanges it
	}
	// The entry in /proc leads to the very same file, also from an O_PATH descriptor.
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
}

// settle notes what became of name in a folder, or of the folder itself. err is nil
// once it is changed.
func (s *setter) settle(folder string, name cname, err error) {
	if err == nil {
		return
	}
	err = &fs.PathError{Op: "change", Path: filepath.Join(folder, name.String()), Err: err}
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			s.refuse(err)
			return
		}
	}
	s.fail(err)
}

// refusals are what the kernel says of a file that nobody may change. Others,
// such as those of a broken disk, are not to be passed over.
var refusals = []error{unix.EPERM, unix.EACCES, unix.EROFS, unix.EOPNOTSUPP, unix.EINVAL}
