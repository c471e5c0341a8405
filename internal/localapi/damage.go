package localapi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	// lockTimeout is for the database's own lock, which nobody else can have
	// while we hold the store's.
	lockTimeout = time.Second
	// startRoom is what a new store takes on the disk: three pieces of the log
	// and the database's first.
	startRoom = 3*logSegment + 16<<20
)

// ErrDamagedStore is returned when the store's files cannot be read.
var ErrDamagedStore = errors.New("the store is damaged")

// ErrDiskFull is returned when the store's disk has no room for it.
var ErrDiskFull = errors.New("the disk is full")

// checkRoom says whether the disk has room for the store in dir to start: more
// for a new one, which takes its files first.
func checkRoom(dir string) error {
	least := uint64(roomToChange)
	if _, err := os.Stat(formatFile(dir)); errors.Is(err, fs.ErrNotExist) {
		least = startRoom
	}
	if free := freeBytes(dir); free < least {
		return damaged(dir, fmt.Errorf("%w: %d MiB are free, it needs %d MiB", unix.ENOSPC, free>>20, least>>20))
	}
	return nil
}

// checkFiles looks for what is wrong with the files of the store in dir before
// etcd opens them: etcd takes a half of a store for a new one, and opens its
// database in a goroutine where damage ends the process.
func checkFiles(dir string) error {
	logs, err := filepath.Glob(filepath.Join(walDir(dir), "*.wal"))
	if err != nil {
		return err
	}
	_, errDB := os.Stat(databaseFile(dir))
	if errDB != nil && !errors.Is(errDB, fs.ErrNotExist) {
		return errDB
	}
	_, err = os.Stat(formatFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it never served: etcd makes what lacks
	}
	if err != nil {
		return err
	}
	if errDB != nil {
		return fmt.Errorf("%s is missing", databaseFile(dir))
	}
	if len(logs) == 0 {
		return fmt.Errorf("%s holds no log", walDir(dir))
	}
	return errors.Join(checkLog(walDir(dir)), checkDatabase(databaseFile(dir)))
}

// checkLog reads the log once. A last record that was not written to its end
// is no damage: nobody was told that it was.
func checkLog(dir string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %v", dir, r)
		}
	}()
	starts, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
	if err != nil {
		return fmt.Errorf("read the log in %s: %w", dir, err)
	}
	if len(starts) == 0 { // the first record after a new log's head is one
		return fmt.Errorf("the log in %s has no beginning", dir)
	}
	return nil
}

// checkDatabase reads every page of the database once. On a bad page bolt
// panics, and where the file is too short the kernel sends a signal.
func checkDatabase(file string) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %v", file, r)
		}
	}()
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	err = db.View(func(tx *bolt.Tx) error {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("%s is cut off: it has %d of %d bytes", file, info.Size(), tx.Size())
		}
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
			return inOrder(b)
		})
	})
	return errors.Join(err, db.Close())
}

// inOrder reads a bucket to its end.
func inOrder(b *bolt.Bucket) error {
	var last []byte
	return b.ForEach(func(k, _ []byte) error {
		if last != nil && bytes.Compare(last, k) >= 0 {
			return fmt.Errorf("its keys are out of order at %x", k)
		}
		last = k
		return nil
	})
}

func walDir(dir string) string       { return filepath.Join(dir, "member", "wal") }
func databaseFile(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// damaged says that the store in dir cannot be opened because of err, and what
// helps. A full disk is no damage: the store is whole, and nothing must be moved.
func damaged(dir string, err error) error {
	if noSpaceLeft(err) {
		return fmt.Errorf("%w: the store in %s cannot start: %w (free some space and start again; nothing is lost)", ErrDiskFull, dir, err)
	}
	return fmt.Errorf(`%w: open %s: %w (put back a backup with "holdfast restore FILE", or start with an empty store after "holdfast restore --empty": `+
		"pods from the manifest folder come back by themselves, objects made through the API do not)",
		ErrDamagedStore, dir, err)
}

// broken says why a store that ran cannot go on.
func broken(dir string, err error) error {
	if noSpaceLeft(err) {
		return fmt.Errorf("%w: the store in %s cannot write: %w (free some space and start again; nothing that was acknowledged is lost, and pods run on)", ErrDiskFull, dir, err)
	}
	return fmt.Errorf("the store in %s cannot go on: %w (see the kernel's log for errors of the disk, and start again)", dir, err)
}

// noSpaceLeft reports whether err came of a full disk. Some of etcd's errors
// keep only the words.
func noSpaceLeft(err error) bool {
	return errors.Is(err, unix.ENOSPC) || strings.Contains(err.Error(), unix.ENOSPC.Error())
}

// freeBytes is the room left on the disk of dir; where it cannot be known, as
// much as there can be.
func freeBytes(dir string) uint64 {
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) != nil {
		return 1 << 62
	}
	return disk.Bfree * uint64(disk.Bsize)
}
