package localapi

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// roomToCreate is what must be free on the disk for a new object to be
	// taken. etcd does not survive a write that fails.
	roomToCreate = 64 << 20
	// roomToChange is what must be free for an object to be changed: less, as
	// deleting a pod, which may be what frees the disk, begins with a change.
	roomToChange = 16 << 20
	// unsavedBytes bounds what is kept in memory until the database is brought
	// up to the log.
	unsavedBytes = 1 << 20
)

// reasonFull is the reason of the API's answer 507; Kubernetes has no word for it.
const reasonFull metav1.StatusReason = "InsufficientStorage"

// A guard turns writes away that the store has no room for, before they reach
// it. What is refused was not acknowledged, reads go on, deletions are always
// let through, and when there is room again everything goes on by itself. Its
// methods may be called concurrently.
type guard struct {
	dir      string
	free     func(dir string) uint64 // room on the disk, bytes
	size     func() int64            // of what the store holds, bytes
	limit    int64                   // what it may hold for something new to be taken, bytes
	commit   func()                  // brings the database up to the log
	ready    atomic.Bool             // the API has its default objects
	unsaved  atomic.Int64            // bytes written since commit
	overfull atomic.Bool             // etcd said that its quota is used up
	short    chan struct{}           // takes a token when something was refused
}

func newGuard(e *etcd) *guard {
	backend := e.server.Server.Backend()
	return &guard{
		dir: e.dir, free: freeBytes, size: backend.SizeInUse, limit: e.sizeToCreate(), commit: backend.ForceCommit,
		short: make(chan struct{}, 1),
	}
}

// sizeToCreate is the size of the store from which nothing new is taken. The
// rest of the quota is for changes, so that objects can be deleted.
func (e *etcd) sizeToCreate() int64 {
	return e.quota / 8 * 7
}

// shortage says what there is too little of for an object to be created, or,
// if create is false, changed; "" if there is enough. Until the API is ready a
// creation counts as a change: the default objects of a new version are few,
// and upstream's server ends its process if it cannot make them.
func (g *guard) shortage(create bool) string {
	create = create && g.ready.Load()
	least := uint64(roomToChange)
	if create {
		least = roomToCreate
	}
	switch free := g.free(g.dir); {
	case free < least:
		return fmt.Sprintf("the disk of %s is nearly full: %d MiB are free; the API takes new objects from %d MiB and changes from %d MiB, deletions always: free some space",
			g.dir, free>>20, roomToCreate>>20, roomToChange>>20)
	case g.overfull.Load():
		return fmt.Sprintf("the store in %s is full: delete objects that are not needed", g.dir)
	case create && g.size() > g.limit:
		return fmt.Sprintf("the store in %s is nearly full: it holds %d MiB and takes new objects up to %d MiB: delete some that are not needed",
			g.dir, g.size()>>20, g.limit>>20)
	}
	return ""
}

// admit returns the API's answer to a write for which there is no room.
func (g *guard) admit(create bool) error {
	message := g.shortage(create)
	if message == "" {
		return nil
	}
	g.call()
	return refusal(message)
}

// call makes the housekeeper look at once.
func (g *guard) call() {
	select {
	case g.short <- struct{}{}:
	default:
	}
}

func refusal(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: reasonFull, Message: message,
	}}
}

// wrote counts what was written, so that the memory for it stays bounded.
func (g *guard) wrote(bytes int) {
	if g.unsaved.Add(int64(bytes)) >= unsavedBytes {
		g.unsaved.Store(0)
		g.commit()
	}
}

// guarded is the store as the storages of all resources see it.
type guarded struct {
	kubernetes.Interface
	guard *guard
}

// OptimisticPut creates an object (expectedRevision is 0) or changes it.
func (g guarded) OptimisticPut(ctx context.Context, key string, value []byte, expectedRevision int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	if err := g.guard.admit(expectedRevision == 0); err != nil {
		return kubernetes.PutResponse{}, err
	}
	resp, err := g.Interface.OptimisticPut(ctx, key, value, expectedRevision, opts)
	if err != nil && rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrNoSpace) {
		g.guard.overfull.Store(true)
		return resp, g.guard.admit(false)
	}
	if err == nil {
		g.guard.wrote(len(value))
	}
	return resp, err
}
