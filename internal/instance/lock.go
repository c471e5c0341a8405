package instance

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrRunning is returned by Lock when another process runs the instance.
var ErrRunning = errors.New("already running")

// Lock takes the instance for this process until it ends, however it ends, or
// until the returned release is called.
func (in *Instance) Lock() (release func() error, err error) {
	path := in.Path("up.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the instance: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := in.holder()
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w as process %s (see \"holdfast status --root-dir %s\")", in.Root, ErrRunning, holder, in.Root)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), f.Close())
	}
	return f.Close, nil
}

// Running reports whether a process holds the instance, and which.
func (in *Instance) Running() (pid string, running bool) {
	f, err := os.Open(in.Path("up.lock"))
	if err != nil {
		return "", false
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return in.holder(), true
	}
	return "", false
}

func (in *Instance) holder() string {
	data, err := os.ReadFile(in.Path("up.lock"))
	if err != nil || len(data) == 0 {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}
