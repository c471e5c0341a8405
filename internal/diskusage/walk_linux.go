package diskusage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A device is a filesystem, by the kernel's two numbers.
type device struct{ major, minor uint32 }

const (
	openFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK
	statFlags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	statMask  = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BLOCKS

	blockSize = 512 // of statx's blocks, whatever the filesystem's are

	// resolveFlags keep an open from leading to what is mounted in the tree, which
	// may hang.
	resolveFlags = unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH

	// Of the header that a name follows in what getdents64 returns.
	lengthOffset, typeOffset, nameOffset = 16, 18, 19

	bufferSize = 32 << 10
)

// openTop opens the top of a tree. It is nil if that is a file, which is used.
func openTop(path string) (*folder, Usage, error) {
	fd, err := unix.Open(path, openFlags, 0)
	if err == nil {
		f := &folder{fd: fd}
		var s unix.Statx_t
		if err := statx(fd, empty, unix.AT_EMPTY_PATH, &s); err != nil {
			return nil, Usage{}, errors.Join(err, unix.Close(fd))
		}
		f.device = device{s.Dev_major, s.Dev_minor}
		return f, Usage{s.Blocks * blockSize, 1}, nil
	}
	if !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return nil, Usage{}, err
	}
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, statFlags, statMask, &s); err != nil {
		return nil, Usage{}, err
	}
	return nil, Usage{s.Blocks * blockSize, 1}, nil
}

// A worker counts folders, one after another.
type worker struct {
	*walk
	buffer [bufferSize]byte
	names  []byte
	ends   []int
	stat   unix.Statx_t
}

func (w *walk) work() {
	if w.background {
		// A thread that cannot go back is not given back: it ends with the goroutine.
		runtime.LockOSThread()
		before := yieldToOthers()
		defer func() {
			if before.restore() {
				runtime.UnlockOSThread()
			}
		}()
	}
	own := &worker{walk: w}
	for f := w.next(); f != nil; f = w.next() {
		used, below, err := own.count(f)
		if err != nil && !errors.Is(err, errGone) {
			w.fail(err)
		}
		w.add(f, used, below)
	}
}

// priority is a thread's.
type priority struct {
	disk  uintptr // class and level, as ioprio_set(2) has them
	nice  int
	known bool
}

const (
	thisThread = 1 // IOPRIO_WHO_PROCESS, of which 0 is the calling thread
	idleDisk   = 3 << 13
	lowNice    = 10
)

// yieldToOthers puts this thread behind all others that want the disk or the
// processor, and returns what it was. Where that is not allowed, it counts as anybody.
func yieldToOthers() priority {
	disk, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, thisThread, 0, 0)
	nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, thisThread, 0, idleDisk)
	nice = 20 - nice // getpriority(2) itself has 40 to 1
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, max(nice, lowNice))
	return priority{disk, nice, errno == 0 && err == nil}
}

// restore gives this thread its priority back, and reports whether it has it.
func (p priority) restore() bool {
	if !p.known || unix.Setpriority(unix.PRIO_PROCESS, 0, p.nice) != nil {
		return false
	}
	_, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, thisThread, 0, p.disk)
	return errno == 0
}

// count opens a folder, unless it is the top, and adds up what is directly in it.
// It returns the folders in it, which are not counted.
func (w *worker) count(f *folder) (used Usage, below []*folder, err error) {
	if f.parent != nil {
		if used, err = w.enter(f); err != nil {
			return Usage{}, nil, err
		}
	}
	w.names, w.ends = w.names[:0], w.ends[:0]
	for {
		n, err := unix.ReadDirent(f.fd, w.buffer[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.ENOENT) {
			break // removed while it was read
		}
		if err != nil {
			return used, nil, &fs.PathError{Op: "read", Path: f.path(), Err: err}
		}
		if n <= 0 {
			break
		}
		if err := w.entries(f, w.buffer[:n], &used); err != nil {
			return used, nil, err
		}
		if w.givenUp() {
			return used, nil, nil
		}
	}
	return used, w.folders(f), nil
}

// entries adds the files of a part of a folder, and notes the names of folders.
func (w *worker) entries(f *folder, data []byte, used *Usage) error {
	for len(data) > nameOffset {
		length := int(binary.NativeEndian.Uint16(data[lengthOffset:]))
		if length <= nameOffset || length > len(data) {
			return &fs.PathError{Op: "read", Path: f.path(), Err: unix.EBADMSG}
		}
		kind, name := data[typeOffset], data[nameOffset:length]
		data = data[length:]
		name = name[:bytes.IndexByte(name, 0)+1]
		if len(name) == 0 || isDots(name) {
			continue
		}
		if kind != unix.DT_DIR {
			switch err := statx(f.fd, &name[0], 0, &w.stat); {
			case errors.Is(err, unix.ENOENT):
				continue
			case err != nil:
				return &fs.PathError{Op: "stat", Path: f.path() + "/" + string(name[:len(name)-1]), Err: err}
			}
			if w.stat.Mode&unix.S_IFMT != unix.S_IFDIR {
				w.file(used)
				continue
			}
		}
		w.names = append(w.names, name...)
		w.ends = append(w.ends, len(w.names))
	}
	return nil
}

// file adds the file that stat is about.
func (w *worker) file(used *Usage) {
	s := &w.stat
	if (device{s.Dev_major, s.Dev_minor}) != w.device || s.Nlink > 1 && w.seen(s.Ino) {
		return
	}
	used.Bytes += s.Blocks * blockSize
	used.Inodes++
}

// folders makes the folders whose names were noted.
func (w *worker) folders(parent *folder) []*folder {
	if len(w.ends) == 0 {
		return nil
	}
	// One block for all: they are of one size and live about as long.
	names, all, start := string(w.names), make([]folder, len(w.ends)), 0
	below := make([]*folder, len(w.ends))
	for i, end := range w.ends {
		all[i] = folder{parent: parent, name: names[start:end], fd: -1}
		below[i], start = &all[i], end
	}
	return below
}

// enter opens a folder and counts itself.
func (w *worker) enter(f *folder) (Usage, error) {
	fd, err := w.openBelow(f)
	if err != nil {
		return Usage{}, err
	}
	w.hold(f, fd)
	if err := statx(fd, empty, unix.AT_EMPTY_PATH, &w.stat); err != nil {
		return Usage{}, &fs.PathError{Op: "stat", Path: f.path(), Err: err}
	}
	if (device{w.stat.Dev_major, w.stat.Dev_minor}) != w.device {
		return Usage{}, errGone
	}
	return Usage{w.stat.Blocks * blockSize, 1}, nil
}

// openBelow opens a folder from its parent's descriptor, or where that was closed
// because too many were open, from the top on.
func (w *worker) openBelow(f *folder) (fd int, err error) {
	if from := w.lend(f.parent); from >= 0 {
		fd, err = openFolder(from, f.name)
	} else {
		fd, err = w.openFromTop(f)
	}
	w.opened(f.parent)
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return -1, errGone
	case errors.Is(err, errGone):
		return -1, err
	}
	return -1, &fs.PathError{Op: "open", Path: f.path(), Err: err}
}

// openFromTop opens a folder whose parent was closed. Only the top is sure to stay
// open meanwhile.
func (w *worker) openFromTop(f *folder) (fd int, err error) {
	var chain []*folder
	for p := f; p.parent != nil; p = p.parent {
		chain = append(chain, p)
		f = p.parent
	}
	from := f.fd // the top's, which nobody changes
	for i, c := range slices.Backward(chain) {
		if w.givenUp() {
			err = errGone
		} else {
			fd, err = openFolder(from, c.name)
		}
		if i < len(chain)-1 {
			err = errors.Join(err, unix.Close(from))
		}
		if err != nil {
			return -1, err
		}
		from = fd
	}
	return fd, nil
}

// openFolder opens a folder in another. A kernel, or a filter of system calls, that
// does not have openat2 is no error: the device is looked at, too.
func openFolder(parent int, name string) (int, error) {
	how := unix.OpenHow{Flags: openFlags, Resolve: resolveFlags}
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(parent), uintptr(unsafe.Pointer(unsafe.StringData(name))),
			uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR, unix.EAGAIN: // EAGAIN: something was renamed meanwhile
			continue
		case unix.ENOSYS, unix.EPERM:
			return unix.Openat(parent, name[:len(name)-1], openFlags, 0)
		default:
			return -1, errno
		}
	}
}

// empty is the name of a descriptor's own file.
var empty = new(byte)

// statx is unix.Statx for a name that ends with a zero byte, so that it need not
// be copied.
func statx(dir int, name *byte, flags int, out *unix.Statx_t) error {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(name)),
			uintptr(statFlags|flags), statMask, uintptr(unsafe.Pointer(out)), 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
			continue
		default:
			return errno
		}
	}
}

func isDots(name []byte) bool {
	return name[0] == '.' && (len(name) == 2 || len(name) == 3 && name[1] == '.')
}

// path names a folder below the top, for people.
func (f *folder) path() string {
	if f.parent == nil {
		return "."
	}
	return f.parent.path() + "/" + f.name[:len(f.name)-1]
}

func (w *walk) givenUp() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// hold gives a folder its descriptor.
func (w *walk) hold(f *folder, fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.fd = fd
	w.open[f] = struct{}{}
}

// lend returns a folder's descriptor, negative if it was closed. It stays open for
// a folder in it, until opened is called for that.
func (w *walk) lend(f *folder) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return f.fd
}

// opened says that one of a folder's folders was opened, or never will be.
func (w *walk) opened(f *folder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.waiting--
	if f.waiting == 0 && f.fd >= 0 && f.parent != nil {
		w.closeLocked(f)
	}
}

// closeLocked closes a folder. Nobody uses the descriptor any more: it was read, and
// who opens a folder in it is still counted in waiting.
func (w *walk) closeLocked(f *folder) {
	_ = unix.Close(f.fd) // only read
	f.fd = -1
	delete(w.open, f)
}

// release closes what is open when all workers have ended: the top, and more if the
// walk was given up.
func (w *walk) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.open {
		w.closeLocked(f)
	}
}
