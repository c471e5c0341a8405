// Package fsgroup gives the files of a volume to a group: the rules of
// upstream's fsGroup.
//
// The group owns every file, folder and link, may read and write all of them,
// and what is made in a folder later belongs to it too. What is right already
// is left alone: its times stay, and nothing of it is written to the disk.
//
// It changes the tree at the given path and nothing else, whatever a pod that
// uses the volume does in it meanwhile. Links change hands themselves and are
// not followed; every change goes by a descriptor that was opened in its folder
// without following anything; what is mounted in the tree stays as it is. A
// file with several names (hard links) is one file under all of them. The kernel
// makes no such name across mounts, so a pod has none of a file outside its volume.
//
// Calls may run at once, also for trees that overlap.
package fsgroup

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxDepth   = 1000 // how deep folders may be nested; each level costs an open file
	maxWorkers = 8    // goroutines of one call, on a machine with as many processors
	maxNamed   = 3    // refused files that a Result names

	firstTold = 30 * time.Second // upstream's
	nextTold  = time.Minute      // upstream's
)

// A Result says what became of the files of a tree.
type Result struct {
	Files    int64   // that were seen, folders and links among them
	Refused  int64   // of them, those that stay as they were, because nobody may change them
	Examples []error // why, of the first few refused
}

// Set gives the tree at path, which must not be a link, to the group gid. A file
// that cannot be changed, because it is immutable or its filesystem knows no
// owners, is counted in the Result and is no error, as upstream's. Any other
// error ends it, and so does the end of ctx.
//
// The top comes last: a change that was cut short, by an error or with the
// process, is not taken for done by Has.
//
// slow, if it is not nil, is called when that takes 30 seconds, and each minute
// from then on, with the number of files seen so far. It must not block.
func Set(ctx context.Context, path string, gid int64, slow func(files int64)) (Result, error) {
	s := &setter{gid: uint32(gid), places: make(chan struct{}, min(runtime.GOMAXPROCS(0), maxWorkers))} //nolint:gosec // the API allows 31 bits
	stopWatching := context.AfterFunc(ctx, func() { s.fail(context.Cause(ctx)) })
	defer stopWatching()
	quiet := s.tell(slow)
	defer quiet()

	s.places <- struct{}{}
	s.top(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.result.Files = s.files.Load()
	if s.mu.err != nil {
		return s.mu.result, fmt.Errorf("give %s to group %d: %w", path, gid, s.mu.err)
	}
	return s.mu.result, nil
}

// Has reports whether a folder is one that Set has been through with to its end.
func Has(path string, gid int64) bool {
	var stat unix.Statx_t
	return unix.Statx(unix.AT_FDCWD, path, 0, wantedOfStat, &stat) == nil && isFolder(&stat) &&
		int64(stat.Gid) == gid && missing(&stat) == 0
}

// Owns reports whether what is at path belongs to a group.
func Owns(path string, gid int64) bool {
	var stat unix.Stat_t
	return unix.Stat(path, &stat) == nil && int64(stat.Gid) == gid
}

// setter is one change of one tree.
type setter struct {
	gid    uint32
	places chan struct{} // holds one for each goroutine at work
	files  atomic.Int64
	ended  atomic.Bool // by an error, or by whoever asked
	links  sync.Mutex  // held while a file with several names is changed

	mu struct {
		sync.Mutex
		result Result
		err    error // the first
	}
}

// fail ends the change.
func (s *setter) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err == nil {
		s.mu.err = err
	}
	s.ended.Store(true)
}

func (s *setter) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.result.Refused++
	if len(s.mu.result.Examples) < maxNamed {
		s.mu.result.Examples = append(s.mu.result.Examples, err)
	}
}

// tell calls slow while the change goes on, until the returned function has
// returned.
func (s *setter) tell(slow func(files int64)) (quiet func()) {
	if slow == nil {
		return func() {}
	}
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		timer := time.NewTimer(firstTold)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
				slow(s.files.Load())
				timer.Reset(nextTold)
			}
		}
	})
	return func() {
		close(done)
		work.Wait()
	}
}
