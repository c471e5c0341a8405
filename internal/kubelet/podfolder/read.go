package podfolder

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ReadIn reads the file name below the folder dir, of at most limit bytes. A
// pod may have put anything there: a link is followed only within dir, and
// what is no regular file is an error. Only what is seen to be one is opened: a
// device does things when it is, and pods may make any.
func (f *Folders) ReadIn(dir, name string, limit int64) (content []byte, err error) {
	file, err := openRegular(dir, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	content, err = io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(content)) > limit {
		return nil, fmt.Errorf("%s in %s has more than %d bytes", name, dir, limit)
	}
	return content, err
}

func openRegular(dir, name string) (*os.File, error) {
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	handle, err := find(int(root.Fd()), name)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s in %s is not a regular file", name, dir)
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", handle.Fd()))
}

// find returns a handle of what name is below the folder root, without opening it.
func find(root int, name string) (*os.File, error) {
	for {
		fd, err := unix.Openat2(root, name, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
		})
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN): // a rename raced with ".."
			continue
		case err != nil:
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}
