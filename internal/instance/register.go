package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DefaultRegister is the register of this machine.
const DefaultRegister Register = "/var/lib/holdfast-instances"

// A Register is the folder in which the instances of one machine find each
// other, those that are down among them: one link an instance, ID to root
// folder. What an instance has is written in its own folder alone, so nothing
// here can be stale but a link that leads nowhere.
//
// On a machine whose register cannot be written instances only see what the
// kernel tells: the routes of those that have run since the last boot.
type Register string

// Lock keeps others from reading and adding until unlock is called or this
// process ends. It waits for the moment that another one needs.
func (r Register) Lock() (unlock func() error, err error) {
	for {
		dir, err := r.lock()
		if err != nil {
			return nothing(err)
		}
		// The last instance takes the folder away, perhaps while we waited.
		held, err1 := dir.Stat()
		there, err2 := os.Stat(string(r))
		if err1 == nil && err2 == nil && os.SameFile(held, there) {
			return dir.Close, nil
		}
		if err := dir.Close(); err != nil {
			return nil, err
		}
	}
}

func (r Register) lock() (*os.File, error) {
	if err := os.MkdirAll(string(r), 0o755); err != nil {
		return nil, err
	}
	dir, err := os.Open(string(r))
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", r, err), dir.Close())
	}
	return dir, nil
}

// nothing is a lock that holds nothing, where there is nothing to be written.
func nothing(err error) (func() error, error) {
	if unwritable(err) {
		return func() error { return nil }, nil
	}
	return nil, fmt.Errorf("register of instances: %w", err)
}

func unwritable(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission)
}

// Add makes in known to the others; the register is locked. It may be called
// again.
func (r Register) Add(in *Instance) error {
	link := filepath.Join(string(r), in.ID)
	if old, err := os.Readlink(link); err == nil && old == in.Root {
		return nil
	}
	err := os.Remove(link) // of a root folder that was moved
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Symlink(in.Root, link)
	}
	if err != nil && !unwritable(err) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("register the instance: %w", err)
	}
	return nil
}

// Remove takes in out, and the register away with the last one. It locks by
// itself.
func (r Register) Remove(in *Instance) (err error) {
	unlock, err := r.Lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	err = os.Remove(filepath.Join(string(r), in.ID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !unwritable(err) {
		return fmt.Errorf("remove the instance from the register: %w", err)
	}
	_ = unix.Rmdir(string(r)) // others may be in it
	return nil
}

// Others returns the instances that are registered, other than the one in the
// folder root. Those that cannot be read, on a disk that is not there perhaps,
// are left out.
func (r Register) Others(root string) ([]*Instance, error) {
	entries, err := os.ReadDir(string(r))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("register of instances: %w", err)
	}
	var others []*Instance
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(string(r), e.Name()))
		if err != nil || target == root {
			continue
		}
		if in, err := Open(target); err == nil && in.ID == e.Name() {
			others = append(others, in)
		}
	}
	return others, nil
}
