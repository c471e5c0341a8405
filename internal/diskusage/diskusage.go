// Package diskusage counts what a tree of files takes on its disk.
//
// It counts as du does: the blocks that are really there, so that a sparse file
// counts for little; the folders themselves; a file with several names once; one
// filesystem only, without what is mounted in the tree. It follows no link and
// holds no path that somebody could exchange meanwhile: everything is opened from
// its folder's descriptor. What vanishes during the count is not counted.
//
// Several threads count at once, and hardly anything is allocated: a walk of a
// hundred thousand files leaves some tens of kilobytes of garbage.
package diskusage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

// A Usage is what a tree takes.
type Usage struct {
	Bytes  uint64 // of blocks, so a multiple of 512
	Inodes uint64 // files and folders, the top among them
}

// Options say how to count. The zero value is for a count that somebody waits for.
type Options struct {
	// Workers is how many threads count at once, if there are as many folders to count.
	// Default 8, whatever the processors: when the kernel has nothing of the tree in
	// memory, they mostly wait for the disk.
	Workers int
	// Background has the count wait for others that want the disk or the processor.
	Background bool
}

const defaultWorkers = 8

// maxOpen is how many folders a count keeps open. What lies deeper than that in a
// tree is opened anew from the top.
const maxOpen = 128

// Measure counts the tree at path, which may also be a single file; if path itself
// is a link, the link is counted. An error that is fs.ErrNotExist says that there is
// nothing; with any other error, that of ctx among them, the tree takes at least
// what is returned.
//
// A system call on a device or a server that hangs does not return, and neither
// does Measure then.
func Measure(ctx context.Context, path string, o Options) (Usage, error) {
	if err := ctx.Err(); err != nil {
		return Usage{}, err
	}
	top, used, err := openTop(path)
	if err != nil {
		return Usage{}, &fs.PathError{Op: "measure", Path: path, Err: err}
	}
	if top == nil {
		return used, nil
	}
	w := &walk{device: top.device, most: cmp.Or(max(o.Workers, 0), defaultWorkers), background: o.Background, open: map[*folder]struct{}{top: {}}, pending: 1, stack: []*folder{top}}
	w.changed.L = &w.mu
	stop := context.AfterFunc(ctx, func() { w.fail(context.Cause(ctx)) })
	w.mu.Lock()
	w.startLocked()
	w.mu.Unlock()
	w.workers.Wait()
	stop()
	w.release()
	used.Bytes += w.used.Bytes
	used.Inodes += w.used.Inodes
	if w.err != nil {
		return used, fmt.Errorf("measure %s: %w", path, w.err)
	}
	return used, nil
}

// A folder is one that is known and not counted yet, or whose own folders are not.
type folder struct {
	parent *folder // nil: the top
	name   string  // in parent, with a zero byte at its end
	device device  // of the top alone

	// The walk's lock guards these.
	fd      int // negative: not open
	waiting int // folders in it that are not opened yet
}

// A walk is one count.
type walk struct {
	device     device
	most       int // workers
	background bool
	workers    sync.WaitGroup

	mu      sync.Mutex           // guards the fields below
	changed sync.Cond            // the stack has grown, or nothing is pending, or err is set
	stack   []*folder            // found and not opened: the last one is next, so that few are open
	pending int                  // on the stack or being counted
	open    map[*folder]struct{} // those that have a descriptor
	linked  map[uint64]struct{}
	started int // workers
	used    Usage
	err     error
}

// startLocked starts a worker.
func (w *walk) startLocked() {
	w.started++
	w.workers.Go(w.work)
}

// fail ends the walk with its first error.
func (w *walk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.changed.Broadcast()
}

// next returns a folder to count; nil: there will be no more.
func (w *walk) next() *folder {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.stack) == 0 && w.pending > 0 && w.err == nil {
		w.changed.Wait()
	}
	if w.err != nil || w.pending == 0 {
		return nil
	}
	f := w.stack[len(w.stack)-1]
	w.stack = w.stack[:len(w.stack)-1]
	return f
}

// add takes what was counted in a folder, and the folders in it.
func (w *walk) add(f *folder, used Usage, below []*folder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.used.Bytes += used.Bytes
	w.used.Inodes += used.Inodes
	w.stack = append(w.stack, below...)
	// One more each time: a small tree is counted before a second thread is there.
	if w.started < w.most && len(w.stack) > w.started {
		w.startLocked()
	}
	w.pending += len(below) - 1
	f.waiting = len(below)
	if f.fd >= 0 && f.parent != nil && (f.waiting == 0 || len(w.open) > maxOpen) {
		w.closeLocked(f)
	}
	if len(below) > 0 || w.pending == 0 {
		w.changed.Broadcast()
	}
}

// seen reports whether a file with several names was counted under another.
func (w *walk) seen(inode uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.linked[inode]; ok {
		return true
	}
	if w.linked == nil {
		w.linked = map[uint64]struct{}{}
	}
	w.linked[inode] = struct{}{}
	return false
}

// errGone is returned when a folder is not there any more, is none any more, or
// belongs to another filesystem: it is passed over.
var errGone = errors.New("not part of the tree")
