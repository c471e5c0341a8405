package localapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"golang.org/x/sys/unix"
)

const (
	// houseInterval is how often the store is looked after. A look reads a few
	// numbers; what it finds to do is rare.
	houseInterval = time.Minute
	// leastGain is what defragmentation, which stops the store while it
	// rewrites the database, must give back; and it must be most of the file.
	leastGain = 16 << 20
	// commitsToCount is how many commits it takes, and a few, until what was
	// freed is counted.
	commitsToCount = 4
)

// keepHouse keeps the store's files small until ctx is done: the API server
// forgets old history by itself, and the room of that is used again, but only
// defragmentation gives it back.
func (e *etcd) keepHouse(ctx context.Context) {
	client := e.client()
	tick := time.NewTicker(houseInterval)
	defer tick.Stop()
	told := ""
	for {
		message := e.guard.shortage(true)
		switch {
		case message != "" && told == "":
			e.log.Warn("The store takes nothing new", "reason", message)
		case message == "" && told != "":
			e.log.Info("The store takes new objects again")
		}
		told = message
		if err := e.tidy(ctx, client); err != nil && ctx.Err() == nil {
			e.log.Warn("The store could not be tidied, will retry", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.guard.short:
			// One look answers all that is refused meanwhile.
			if !pause(ctx, time.Second) {
				return
			}
		}
	}
}

// pause waits; false: ctx is done.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// tidy does what there is to do now.
func (e *etcd) tidy(ctx context.Context, client *clientv3.Client) error {
	backend := e.server.Server.Backend()
	full := e.guard.overfull.Load()
	if full || backend.SizeInUse() > e.sizeToCreate() {
		if err := e.forget(ctx, client); err != nil {
			return err
		}
		if err := e.count(ctx); err != nil {
			return err
		}
	}
	gain := backend.Size() - backend.SizeInUse()
	if (full || gain > backend.Size()/2) && gain > leastGain && freeBytes(e.dir) > uint64(backend.SizeInUse())+roomToChange {
		before := backend.Size()
		if err := backend.Defrag(); err != nil {
			return fmt.Errorf("defragment the store: %w", err)
		}
		e.log.Info("The store was defragmented", "freed", before-backend.Size())
	}
	e.preallocate()
	if full && backend.Size() < e.sizeToCreate() {
		return e.reopen(ctx, client)
	}
	return nil
}

// count makes the size in use that of now. The database counts the pages that a
// commit frees only at a later one, once nobody reads what was before, and none
// comes where nothing is written: those here change nothing.
func (e *etcd) count(ctx context.Context) error {
	backend := e.server.Server.Backend()
	backend.ForceCommit()
	for range commitsToCount {
		tx := backend.BatchTx()
		tx.LockOutsideApply()
		tx.UnsafeDelete(schema.Meta, []byte("holdfast: no such key"))
		tx.Unlock()
		backend.ForceCommit()
		if !pause(ctx, 5*time.Millisecond) { // the reader of before is let go beside us
			return ctx.Err()
		}
	}
	return nil
}

// forget drops all history, where the API server would keep five minutes of
// it. Who watches from before begins again with a list.
func (e *etcd) forget(ctx context.Context, client *clientv3.Client) error {
	now, err := client.Get(ctx, storePrefix, clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("read the store's revision: %w", err)
	}
	_, err = client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact the store: %w", err)
	}
	return nil
}

// reopen tells etcd, which takes no writes from the moment that its quota was
// used up, that there is room again.
func (e *etcd) reopen(ctx context.Context, client *clientv3.Client) error {
	member := uint64(e.server.Server.MemberID())
	_, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: member, Alarm: pb.AlarmType_NOSPACE})
	if err != nil {
		return fmt.Errorf("let the store take writes again: %w", err)
	}
	e.guard.overfull.Store(false)
	return nil
}

// preallocate gives the database the blocks of its whole length. It grows by
// pieces that are holes at first; a write into one fails on a full disk, and
// etcd does not survive that. Where the filesystem cannot, or has no room now,
// the guard is all there is.
func (e *etcd) preallocate() {
	f, err := os.OpenFile(databaseFile(e.dir), os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == e.allocated {
		return
	}
	if unix.Fallocate(int(f.Fd()), 0, 0, info.Size()) == nil {
		e.allocated = info.Size()
	}
}
