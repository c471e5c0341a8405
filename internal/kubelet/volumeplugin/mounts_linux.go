package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// mountTmpfs mounts an empty tmpfs of at most size bytes on dir; 0 leaves the
// kernel's default, half of the memory. It must never be swapped out where the
// kernel can promise that (6.4 and later). A system call does it, and not the
// mount program: a node starts with hundreds of these.
func mountTmpfs(dir string, size int64, mode uint32) error {
	options := fmt.Sprintf("mode=%o", mode)
	if size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, options+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, options)
	}
	if err != nil {
		return &fs.PathError{Op: "mount tmpfs", Path: dir, Err: err}
	}
	return nil
}

// mountHugePages mounts an empty filesystem of huge pages of pageSize bytes on
// dir, that holds at most size bytes, rounded up to whole pages; 0: as many as
// the machine has and the pod's cgroup lets it have.
func mountHugePages(dir string, pageSize, size int64) error {
	options := fmt.Sprintf("pagesize=%d", pageSize)
	if size > 0 {
		options += fmt.Sprintf(",size=%d", (size+pageSize-1)/pageSize*pageSize)
	}
	if err := unix.Mount("nodev", dir, "hugetlbfs", 0, options); err != nil {
		return &fs.PathError{Op: fmt.Sprintf("mount huge pages of %d bytes", pageSize), Path: dir, Err: err}
	}
	return nil
}

// mounted reports whether something is mounted on path itself. It does not
// follow a link, and is an error that matches fs.ErrNotExist if path is not
// there. What is mounted there is not asked for anything: it may hang or be dead.
func mounted(path string) (bool, error) {
	parent, err := openAt(unix.AT_FDCWD, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false, err
	}
	defer closeFD(parent)
	fd, err := openAt(parent, filepath.Base(path), unix.O_PATH|unix.O_NOFOLLOW, unix.RESOLVE_NO_XDEV)
	if errors.Is(err, unix.EXDEV) {
		return true, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "look at", Path: path, Err: errors.Unwrap(err)}
	}
	closeFD(fd)
	return false, nil
}

// mountPoints returns every mount point of this process, in the order of mounting.
func mountPoints() ([]string, error) {
	infos, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	points := make([]string, 0, len(infos))
	for _, info := range infos {
		points = append(points, info.MountPoint)
	}
	return points, nil
}

// unmount undoes every mount on path. It is nil if there is none, or no path.
// A mount in use is an error: what still uses it must end first.
func unmount(path string) error {
	for {
		isMount, err := mounted(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !isMount {
			return nil
		}
		if err != nil && !stale(err) {
			return err
		}
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			if errors.Is(err, unix.EINVAL) { // undone meanwhile
				return nil
			}
			return &fs.PathError{Op: "unmount", Path: path, Err: err}
		}
	}
}

// stale reports whether an error is that of a mount whose server or device is gone.
func stale(err error) bool {
	return mount.IsCorruptedMnt(err)
}

// bind mounts what fd is open on, which may be a file or a folder, on target.
func bind(fd int, target string) error {
	if err := unix.Mount(byFD(fd), target, "", unix.MS_BIND, ""); err != nil {
		return &fs.PathError{Op: "bind", Path: target, Err: err}
	}
	return nil
}

// byFD returns a path that leads to what fd is open on, whatever its name is now.
func byFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// detach unmounts path at once from everybody's sight; whoever uses it keeps it.
func detach(path string) error {
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
		return &fs.PathError{Op: "detach", Path: path, Err: err}
	}
	return nil
}

// resolveBelow keeps a path inside the folder it starts from.
const resolveBelow = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS

// openAt opens name below the folder dir, with how it may be resolved.
func openAt(dir int, name string, flags, resolve uint64) (int, error) {
	var fd int
	var err error
	for range maxRaces {
		fd, err = unix.Openat2(dir, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve})
		if err == nil {
			return fd, nil
		}
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) { // EAGAIN: a rename raced with ".."
			break
		}
	}
	return -1, &fs.PathError{Op: "open", Path: name, Err: err}
}

// maxRaces is how often an open may lose to renames, which a pod can make all
// the time, before that is an error.
const maxRaces = 10_000

// eachName calls do with every name in the folder that fd is open on, until ctx
// ends. It goes on after other errors and returns the first few of them, and
// reads a folder of any size in small parts.
func eachName(ctx context.Context, fd int, path string, do func(name string) error) error {
	own, err := openAt(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(own), path)
	var errs []error
	for {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			if ctx.Err() != nil {
				return errors.Join(append(errs, context.Cause(ctx), f.Close())...)
			}
			if err := do(name); err != nil && len(errs) < 5 {
				errs = append(errs, err)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(append(errs, f.Close())...)
}

// closeFD closes a descriptor that nothing was written through.
func closeFD(fd int) { _ = unix.Close(fd) }
