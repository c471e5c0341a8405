package localapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

// ErrNoStore is returned by Snapshot while no store serves.
var ErrNoStore = errors.New("the store does not serve at the moment")

const (
	// revisionsAhead is added to the revision of a store that is put back. A
	// client that saw later ones than the copy has would else wait, without a
	// word, until they come again with another meaning.
	revisionsAhead = 1_000_000_000
	// restoredKey is where the revision was raised, and when.
	restoredKey = "/holdfast.dev/restored"
	// copyBatch is how many keys go into one transaction of a copy.
	copyBatch = 1000
)

// Snapshot writes the store's database, as of one moment, to w, while it
// serves.
func (s *Server) Snapshot(w io.Writer) error {
	store := s.store()
	if store == nil {
		return ErrNoStore
	}
	return store.snapshot(w)
}

func (e *etcd) snapshot(w io.Writer) error {
	snapshot := e.server.Server.Backend().Snapshot()
	_, err := snapshot.WriteTo(w)
	if err := errors.Join(err, snapshot.Close()); err != nil {
		return fmt.Errorf("copy the store: %w", err)
	}
	return nil
}

// SnapshotStore is Snapshot for the store in dir, which no process has open.
// The store is started for it: after a crash its database is behind its log.
func SnapshotStore(ctx context.Context, dir string, log *slog.Logger, w io.Writer) (err error) {
	if _, err := os.Stat(databaseFile(dir)); err != nil {
		return fmt.Errorf("there is no store to copy: %w", err)
	}
	lock, err := openStore(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	return withStore(ctx, dir, log, func(e *etcd) error { return e.snapshot(w) })
}

// withStore runs a store for as long as use does.
func withStore(ctx context.Context, dir string, log *slog.Logger, use func(*etcd) error) (err error) {
	run, err := os.MkdirTemp("", "holdfast-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(run)) }()
	store, err := startEtcd(ctx, storeConfig{dir: dir, runDir: run, log: log})
	if err != nil {
		return err
	}
	defer store.stop()
	return use(store)
}

// CheckSnapshot reads the database in file once and says whether it is whole.
func CheckSnapshot(file string) error {
	if err := checkDatabase(file); err != nil {
		return fmt.Errorf("%w: %w", ErrDamagedStore, err)
	}
	return nil
}

// BuildStore makes a store in dir, which must be empty or missing, with the
// objects of a snapshot. Identities and versions of objects stay; now is when
// it is done.
func BuildStore(ctx context.Context, dir, snapshot string, now time.Time, log *slog.Logger) error {
	if err := CheckSnapshot(snapshot); err != nil {
		return err
	}
	lock, err := openStore(dir)
	if err != nil {
		return err
	}
	err = withStore(ctx, dir, log, func(*etcd) error { return nil }) // makes the files of an empty one
	if err == nil {
		err = transplant(databaseFile(dir), snapshot, now)
	}
	if err == nil {
		err = writeFormat(dir)
	}
	return errors.Join(err, lock.Close())
}

// transplant puts the keys and leases of the database in file from into the
// one of a store that never had any. Everything else of that one, such as how
// far it has read its log, is its own.
func transplant(to, from string, now time.Time) error {
	source, err := bolt.Open(from, 0o600, &bolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return fmt.Errorf("open %s: %w", from, err)
	}
	target, err := bolt.Open(to, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true, Timeout: lockTimeout})
	if err != nil {
		return errors.Join(fmt.Errorf("open %s: %w", to, err), source.Close())
	}
	err = source.View(func(tx *bolt.Tx) error {
		for _, bucket := range [][]byte{schema.Key.Name(), schema.Lease.Name()} {
			if err := copyBucket(target, tx.Bucket(bucket), bucket); err != nil {
				return fmt.Errorf("copy %s: %w", bucket, err)
			}
		}
		return nil
	})
	if err == nil {
		err = target.Update(func(tx *bolt.Tx) error { return raiseRevision(tx, now) })
	}
	if err == nil {
		err = target.Sync()
	}
	return errors.Join(err, target.Close(), source.Close())
}

func copyBucket(target *bolt.DB, from *bolt.Bucket, name []byte) error {
	if from == nil {
		return errors.New("the copy has no such part")
	}
	c := from.Cursor()
	k, v := c.First()
	for k != nil {
		err := target.Update(func(tx *bolt.Tx) error {
			to, err := tx.CreateBucketIfNotExists(name)
			if err != nil {
				return err
			}
			for n := 0; n < copyBatch && k != nil; n++ {
				if err := to.Put(k, v); err != nil {
					return err
				}
				k, v = c.Next()
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// raiseRevision writes one key at a revision far above the last, and marks
// all before it as forgotten, so that watches from before begin anew.
func raiseRevision(tx *bolt.Tx, now time.Time) error {
	keys := tx.Bucket(schema.Key.Name())
	last, _ := keys.Cursor().Last()
	revision := int64(revisionsAhead)
	if len(last) >= 8 {
		revision += int64(binary.BigEndian.Uint64(last))
	}
	value, err := proto.Marshal(&mvccpb.KeyValue{
		Key: []byte(restoredKey), Value: []byte(now.UTC().Format(time.RFC3339)),
		CreateRevision: revision, ModRevision: revision, Version: 1,
	})
	if err != nil {
		return err
	}
	if err := keys.Put(revisionKey(revision), value); err != nil {
		return err
	}
	return tx.Bucket(schema.Meta.Name()).Put(schema.ScheduledCompactKeyName, revisionKey(revision))
}

// revisionKey is etcd's key of a revision: main, "_", sub.
func revisionKey(main int64) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.BigEndian, main) // a Buffer takes everything
	b.WriteByte('_')
	b.Write(make([]byte, 8))
	return b.Bytes()
}
