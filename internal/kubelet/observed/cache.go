package observed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Cache keeps the last inspection of every pod and lets readers wait for a
// newer one. Any goroutine may call any method; the writing methods are
// called by one goroutine at a time.
//
// What is known of a pod is known as of a moment: that of its last inspection,
// or the global time if that is later, as a list of all pods at the global
// time showed nothing new of the pod. Of a pod that has no entry it is known
// that, at the global time, the runtime had nothing of it. Hold takes a pod
// out of the global time for as long as its inspection lasts.
//
// A reader that wants data newer than t is served when that moment is after t.
// The same rule, ready, serves those who ask and those who wait.
//
//	             Set
//	no entry ────────────► status
//	    ▲                  │    ▲
//	    │ UpdateTime Delete│    │Set
//	    │                  ▼    │
//	    └─────────────── nothing as of a moment
//
// Hold and SetObservedTime make an entry of nothing where there is none.
//
// The zero Cache is not usable; call NewCache.
type Cache struct {
	mu sync.Mutex // guards the fields below

	entries map[types.UID]*entry
	nothing map[types.UID]struct{} // the entries without status: kept until the global time says as much
	global  time.Time
	waiters map[types.UID][]*waiter
	// soonest is not after what any waiter waits for, if there is one: until the
	// global time is after it, it wakes nobody.
	soonest time.Time
}

// An entry is what is known of one pod.
type entry struct {
	status   *Status // nil: the runtime had nothing of the pod
	err      error   // of the last inspection
	modified time.Time
	seen     time.Time // the last moment at which the entry was known to be right
	held     time.Time // zero: not held
}

// A waiter is one call that waits.
type waiter struct {
	newerThan time.Time
	answer    chan answer // room for one, so that waking never blocks
}

type answer struct {
	status *Status
	err    error
}

// NewCache returns an empty cache whose global time is zero.
func NewCache() *Cache {
	return &Cache{
		entries: map[types.UID]*entry{},
		nothing: map[types.UID]struct{}{},
		waiters: map[types.UID][]*waiter{},
	}
}

// Get returns the last known status of a pod and the error of its last
// inspection. It never blocks. Of an unknown pod it returns a status with only
// the UID and no error. The status is never nil; after a failed inspection it
// is the one from before.
func (c *Cache) Get(uid types.UID) (*Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.answerLocked(uid)
	return got.status, got.err
}

// GetNewerThan is Get, but waits until what it returns is known as of a moment
// after t. It gives up with ctx's error when ctx is done; the status it then
// returns may be older than t.
func (c *Cache) GetNewerThan(ctx context.Context, uid types.UID, t time.Time) (*Status, error) {
	w, got := c.wait(uid, t)
	if w == nil {
		return got.status, got.err
	}
	select {
	case got := <-w.answer:
		return got.status, got.err
	case <-ctx.Done():
	}
	c.leave(uid, w)
	select {
	case got := <-w.answer: // it came while we left
		return got.status, got.err
	default:
		return got.status, fmt.Errorf("wait for a newer status of pod %s: %w", uid, context.Cause(ctx))
	}
}

// Set stores the inspection of a pod that began at t, wakes who waits for it
// and reports whether it stored. It does not if something newer is known
// already. With an error and a nil status the status from before is kept.
func (c *Cache) Set(uid types.UID, status *Status, err error, t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[uid]
	if e == nil {
		if t.Before(c.global) {
			return false // a later list had nothing of this pod
		}
		e = &entry{}
		c.entries[uid] = e
	}
	if t.Before(e.modified) {
		return false
	}
	if status != nil || err == nil {
		e.status = status
	}
	e.err = err
	c.touchLocked(uid, e, t)
	e.modified = t
	c.wakeLocked(uid)
	return true
}

// Delete records that at t the runtime had nothing of the pod, and wakes who
// waits for that. It does nothing and returns false if something newer is
// known. What remains in memory goes with the next UpdateTime after t.
func (c *Cache) Delete(uid types.UID, t time.Time) bool {
	return c.Set(uid, nil, nil, t)
}

// SetObservedTime records that what is known of the pod was still right at t,
// and wakes who waits for that.
func (c *Cache) SetObservedTime(uid types.UID, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[uid]
	if e == nil {
		e = &entry{}
		c.entries[uid] = e
	}
	c.touchLocked(uid, e, t)
	c.wakeLocked(uid)
}

// Hold says that the pod is found changed at t and will be inspected: until an
// inspection that began at t or later is Set, the global time says nothing
// about it.
func (c *Cache) Hold(uid types.UID, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[uid]
	if e == nil {
		e = &entry{seen: c.global}
		c.entries[uid] = e
		c.nothing[uid] = struct{}{}
	}
	if t.After(e.held) && !e.seen.After(t) {
		e.held = t
	}
}

// UpdateTime sets the global time: at t, everything in the cache that is not
// held was right. It wakes who waits for that. The global time never goes
// back.
func (c *Cache) UpdateTime(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !t.After(c.global) {
		return
	}
	c.global = t
	for uid := range c.nothing {
		if e := c.entries[uid]; e.held.IsZero() && !e.seen.After(t) {
			delete(c.nothing, uid)
			delete(c.entries, uid)
		}
	}
	if len(c.waiters) == 0 || !t.After(c.soonest) {
		return
	}
	for uid := range c.waiters {
		c.wakeLocked(uid)
	}
	c.soonest = c.soonestLocked()
}

// soonestLocked returns the earliest moment that anybody waits for; zero if
// nobody does.
func (c *Cache) soonestLocked() (soonest time.Time) {
	first := true
	for _, waiting := range c.waiters {
		for _, w := range waiting {
			if first || w.newerThan.Before(soonest) {
				soonest, first = w.newerThan, false
			}
		}
	}
	return soonest
}

// touchLocked moves the moment as of which e is known to t, ends a hold from
// before it, and keeps the index of entries without status.
func (c *Cache) touchLocked(uid types.UID, e *entry, t time.Time) {
	if t.After(e.seen) {
		e.seen = t
	}
	if !t.Before(e.held) {
		e.held = time.Time{}
	}
	if e.status == nil && e.err == nil {
		c.nothing[uid] = struct{}{}
	} else {
		delete(c.nothing, uid)
	}
}

// readyLocked is the rule of the cache: what is known of the pod is known as of
// a moment after t.
func (c *Cache) readyLocked(uid types.UID, t time.Time) bool {
	e := c.entries[uid]
	if e == nil {
		return c.global.After(t)
	}
	return e.seen.After(t) || e.held.IsZero() && c.global.After(t)
}

func (c *Cache) answerLocked(uid types.UID) answer {
	e := c.entries[uid]
	switch {
	case e == nil:
		return answer{&Status{UID: uid}, nil}
	case e.status == nil:
		return answer{&Status{UID: uid}, e.err}
	default:
		return answer{e.status, e.err}
	}
}

// wait returns the answer, and a registered waiter if that is not new enough.
func (c *Cache) wait(uid types.UID, t time.Time) (*waiter, answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.answerLocked(uid)
	if c.readyLocked(uid, t) {
		return nil, got
	}
	w := &waiter{newerThan: t, answer: make(chan answer, 1)}
	if len(c.waiters) == 0 || t.Before(c.soonest) {
		c.soonest = t
	}
	c.waiters[uid] = append(c.waiters[uid], w)
	return w, got
}

// leave forgets a waiter that gave up.
func (c *Cache) leave(uid types.UID, w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keepLocked(uid, slices.DeleteFunc(c.waiters[uid], func(other *waiter) bool { return other == w }))
}

// wakeLocked answers the waiters of one pod that are ready.
func (c *Cache) wakeLocked(uid types.UID) {
	waiting := c.waiters[uid]
	if len(waiting) == 0 {
		return
	}
	c.keepLocked(uid, slices.DeleteFunc(waiting, func(w *waiter) bool {
		if !c.readyLocked(uid, w.newerThan) {
			return false
		}
		w.answer <- c.answerLocked(uid)
		return true
	}))
}

// keepLocked makes a pod's waiters those that are left.
func (c *Cache) keepLocked(uid types.UID, left []*waiter) {
	if len(left) == 0 {
		delete(c.waiters, uid)
	} else {
		c.waiters[uid] = left
	}
}
