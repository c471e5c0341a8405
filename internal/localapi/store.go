package localapi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
)

// StoreFormat is the version of what this program writes into the store's
// folder. A program reads its own and the two before it.
const StoreFormat = 1

// Errors that say why a store cannot be used.
var (
	// ErrStoreLocked is returned when another process has the store open.
	ErrStoreLocked = errors.New("the store is in use by another process")
	// ErrNewerStore is returned when a newer Holdfast wrote the store.
	ErrNewerStore = errors.New("the store was written by a newer Holdfast")
)

// openStore makes the store's folder where there is none, locks it, and
// checks its format. The caller closes the returned file to unlock it.
func openStore(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the store's folder: %w", err)
	}
	// etcd's own locks wait for ever; this one answers.
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the store's lock: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		err = errors.Join(err, lock.Close())
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s (stop it with holdfast down, or choose another root folder)", ErrStoreLocked, dir)
		}
		return nil, fmt.Errorf("lock the store: %w", err)
	}
	if err := checkFormat(dir); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func formatFile(dir string) string { return filepath.Join(dir, "format") }

// checkFormat reads the store's format version, where there is one.
func checkFormat(dir string) error {
	file := formatFile(dir)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a new store
	}
	if err != nil {
		return fmt.Errorf("read the store's format version: %w", err)
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(data)))
	switch {
	case err != nil || version < 1:
		return damaged(dir, fmt.Errorf("%s holds %q, not a format version", file, data))
	case version > StoreFormat:
		return fmt.Errorf("%w: format %d, this program reads up to %d: install the newer Holdfast again, or go back with "+
			"\"holdfast restore FILE\" and a backup that this version or an older one made", ErrNewerStore, version, StoreFormat)
	}
	return nil
}

// writeFormat marks a store that has served with the format that it has from
// then on. A store with the mark and without its files is damaged, one without
// the mark is new.
func writeFormat(dir string) error {
	return atomicfile.Write(formatFile(dir), []byte(strconv.Itoa(StoreFormat)+"\n"), 0o600)
}
