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
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		s.fail(err)
		return
	}
	defer closeFD(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		s.fail(&fs.PathError{Op: "stat", Path: path, Err: err})
		return
	}
	if !isFolder(&stat) {
		s.files.Add(1)
		s.settle("", path, s.change(fd, "", &stat))
		return
	}
	folder, err := openAt(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		s.fail(err)
		return
	}
	s.folder(folder, path, 0)
}

// folder changes all that is in the folder that fd is open on, then the folder,
// and closes fd.
func (s *setter) folder(fd int, path string, depth int) {
	defer closeFD(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		s.fail(&fs.PathError{Op: "stat", Path: path, Err: err})
		return
	}
	w := walker{setter: s, fd: fd, path: path, depth: depth, private: stat.Uid == 0 && stat.Mode&0o022 == 0}
	names, more := w.read()
	for more && !s.ended.Load() {
		var next []string
		if next, more = w.read(); more {
			part := names
			w.share(func() { w.entries(part) })
		} else {
			w.entries(names) // the last part, of most folders the only one
		}
		names = next
	}
	w.wait()
	if s.ended.Load() {
		return
	}
	s.files.Add(1)
	s.settle("", path, s.change(fd, "", &stat))
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

// buffers hold what the kernel lists of a folder.
var buffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// read returns the next names in the folder; more is false after the last.
func (w *walker) read() (names []string, more bool) {
	buffer := buffers.Get().(*[16 << 10]byte)
	defer buffers.Put(buffer)
	n, err := unix.ReadDirent(w.fd, buffer[:])
	for errors.Is(err, unix.EINTR) {
		n, err = unix.ReadDirent(w.fd, buffer[:])
	}
	if err != nil {
		w.fail(&fs.PathError{Op: "list", Path: w.path, Err: err})
		return nil, false
	}
	_, _, names = unix.ParseDirent(buffer[:n], -1, nil)
	return names, n > 0
}

// entries changes what has these names in the folder.
func (w *walker) entries(names []string) {
	wrong := false
	for _, name := range names {
		if w.ended.Load() {
			return
		}
		wrong = w.entry(name, wrong)
	}
}

// entry changes one of them, and reports whether it had to. guess says that it
// probably has to, as with the one before: then a look that the change itself
// takes anyway is saved. What is gone meanwhile, or of another filesystem, is
// not in the tree.
func (w *walker) entry(name string, guess bool) (wrong bool) {
	if guess && !w.private {
		return w.opened(name)
	}
	stat, mounted, err := lookAt(w.fd, name)
	switch {
	case errors.Is(err, unix.ENOENT), mounted:
		return false
	case err != nil:
		w.fail(&fs.PathError{Op: "stat", Path: filepath.Join(w.path, name), Err: err})
		return false
	case isFolder(&stat):
		return w.opened(name)
	case stat.Gid == w.gid && missing(&stat) == 0:
		w.files.Add(1)
		return false
	case w.private && stat.Nlink == 1:
		w.files.Add(1)
		w.settle(w.path, name, w.change(w.fd, name, &stat))
		return true
	}
	return w.opened(name)
}

// opened changes an entry by a descriptor: who exchanges it for something else
// has that changed, in the same folder and as it is.
func (w *walker) opened(name string) (wrong bool) {
	fd, err := openAt(w.fd, name, unix.O_PATH|unix.O_NOFOLLOW, inTree)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EXDEV):
		return false
	case err != nil:
		w.fail(err)
		return false
	}
	defer closeFD(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		w.fail(&fs.PathError{Op: "stat", Path: filepath.Join(w.path, name), Err: err})
		return false
	}
	if isFolder(&stat) {
		w.subfolder(fd, name)
		return false
	}
	if stat.Nlink > 1 {
		// Another goroutine may be at the same file by another name, between its
		// change of group, which clears the set-ID bits, and that of the bits.
		w.links.Lock()
		defer w.links.Unlock()
		if err := unix.Fstat(fd, &stat); err != nil {
			w.fail(&fs.PathError{Op: "stat", Path: filepath.Join(w.path, name), Err: err})
			return false
		}
	}
	w.files.Add(1)
	if stat.Gid == w.gid && missing(&stat) == 0 {
		return false
	}
	w.settle(w.path, name, w.change(fd, "", &stat))
	return true
}

// subfolder changes a folder in this one, of which fd is an O_PATH descriptor.
func (w *walker) subfolder(fd int, name string) {
	path := filepath.Join(w.path, name)
	if w.depth >= maxDepth {
		w.fail(fmt.Errorf("%s: folders are nested more than %d deep", path, maxDepth))
		return
	}
	own, err := openAt(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		w.fail(&fs.PathError{Op: "open", Path: path, Err: err})
		return
	}
	w.share(func() { w.folder(own, path, w.depth+1) })
}

func isFolder(stat *unix.Stat_t) bool { return stat.Mode&unix.S_IFMT == unix.S_IFDIR }

// missing returns the permissions that a file has to get.
func missing(stat *unix.Stat_t) uint32 {
	bits := uint32(0o660)
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return 0 // a link has no permissions of its own
	case unix.S_IFDIR:
		bits |= 0o110 | unix.S_ISGID
	}
	return bits &^ stat.Mode
}

// change changes name in the folder that fd is open on, or what fd is open on
// if name is empty. It is as stat says.
func (s *setter) change(fd int, name string, stat *unix.Stat_t) error {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	again := missing(stat) != 0
	if stat.Gid != s.gid {
		if err := unix.Fchownat(fd, name, -1, int(s.gid), flags); err != nil {
			return err
		}
		// That clears the set-ID bits of a file.
		again = again || stat.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && !isFolder(stat)
	}
	if !again || stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	err := unix.Fchmodat(fd, name, stat.Mode&0o7777|missing(stat), flags)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return chmodBefore(fd, name, stat)
	}
	return err
}

// chmodBefore is the change of permissions for kernels before 6.6.
func chmodBefore(fd int, name string, stat *unix.Stat_t) error {
	mode := stat.Mode&0o7777 | missing(stat)
	if name != "" {
		return unix.Fchmodat(fd, name, mode, 0) // it is no link, and nobody exchanges it
	}
	// The entry in /proc leads to the very same file, also from an O_PATH descriptor.
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
}

// settle notes what became of a file, of which err is nil once it is changed.
func (s *setter) settle(folder, name string, err error) {
	if err == nil {
		return
	}
	err = &fs.PathError{Op: "change", Path: filepath.Join(folder, name), Err: err}
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

// lookAt looks at name in the folder that dir is open on. mounted says that
// something is mounted there; kernels before 5.8 do not tell.
func lookAt(dir int, name string) (stat unix.Stat_t, mounted bool, err error) {
	var x unix.Statx_t
	err = unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, &x)
	stat.Mode, stat.Uid, stat.Gid, stat.Nlink = uint32(x.Mode), x.Uid, x.Gid, uint64(x.Nlink)
	return stat, x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, err
}

// openAt opens name in the folder that dir is open on.
func openAt(dir int, name string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		switch {
		case err == nil:
			return fd, nil
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN): // EAGAIN: something was renamed meanwhile
			return -1, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// closeFD closes a descriptor that nothing was written through.
func closeFD(fd int) { _ = unix.Close(fd) }
