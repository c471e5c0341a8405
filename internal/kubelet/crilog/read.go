package crilog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// stampFormat is how times are written out: of one width, so that lines can be
// sorted and cut.
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// checkPeriod is how often a follower looks without being told of a change:
// for a container that ended silently.
const checkPeriod = time.Second

// settleTime is how long a follower stays with a file after another took its
// place: a runtime makes the new file before it has written all it has for the
// old one.
const settleTime = 500 * time.Millisecond

// Options says which part of a log to write, and where to.
type Options struct {
	// Open opens the log file; following calls it again after a rotation.
	Open func() (*os.File, error)
	// Stdout and Stderr get the text of their stream, with newlines; nil drops it.
	Stdout, Stderr io.Writer
	// Flush is called when what was written should reach the reader. May be nil.
	Flush func()
	// Bad is called for each line that is no entry; the line is left out. May be nil.
	Bad func(error)

	Tail       *int64    // the last so many lines; nil: all
	Limit      *int64    // bytes to write in all; nil: no limit
	Since      time.Time // nothing before this time; zero: everything
	Timestamps bool      // the entry's time before each line

	// Running reports whether the container still writes; following ends once
	// it does not and all is written. nil: do not follow.
	Running func() bool
	// Wake makes a follower look at once whether the container still writes; nil:
	// it looks once a second, and when the file changes.
	Wake <-chan struct{}
}

// Read writes a log as opts says and returns when it is done, when the limit
// is reached, or with ctx's error.
func Read(ctx context.Context, opts Options) error {
	r := &reader{Options: opts, left: -1, open: map[Stream]bool{}}
	if opts.Limit != nil {
		r.left = *opts.Limit
	}
	if err := r.start(); err != nil {
		return err
	}
	defer func() { _ = r.file.Close() }() // only read from
	err := r.run(ctx)
	if errors.Is(err, errLimit) {
		err = nil
	}
	if opts.Flush != nil {
		opts.Flush()
	}
	return err
}

// errLimit ends a read that has written all it may.
var errLimit = errors.New("limit reached")

type reader struct {
	Options
	file   *os.File
	offset int64 // of what was read from file
	buf    *bufio.Reader
	rest   []byte          // the start of an entry whose end is not written yet
	left   int64           // bytes that may be written; negative: any
	open   map[Stream]bool // the stream's line is not ended yet

	replaced time.Time // when another file was first seen in the place of ours; zero: it is there still
}

// start opens the file at the place where the wanted lines begin.
func (r *reader) start() error {
	file, err := r.Open()
	if err != nil {
		return err
	}
	if r.Tail != nil {
		info, err := file.Stat()
		if err == nil {
			r.offset, err = tailStart(file, info.Size(), *r.Tail)
		}
		if err == nil {
			_, err = file.Seek(r.offset, io.SeekStart)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("find the last lines: %w", err), file.Close())
		}
	}
	r.file = file
	r.buf = bufio.NewReaderSize(file, 64<<10)
	return nil
}

func (r *reader) run(ctx context.Context) error {
	if r.Limit != nil && *r.Limit <= 0 {
		return nil
	}
	if r.Running == nil {
		if err := r.drain(ctx); err != nil {
			return err
		}
		return r.emit(r.rest) // a last line that the runtime was still writing
	}
	// Watches are few on many machines (fs.inotify.max_user_instances is 128).
	// Without one, what is new is seen at the next check.
	var changed chan fsnotify.Event
	var failed chan error
	if watcher, err := fsnotify.NewWatcher(); err == nil {
		defer func() { _ = watcher.Close() }()
		if err := watcher.Add(filepath.Dir(r.file.Name())); err == nil {
			changed, failed = watcher.Events, watcher.Errors
		}
	}
	tick := time.NewTicker(checkPeriod)
	defer tick.Stop()
	maybeRotated := true
	for {
		running := r.Running() // asked before reading: what it wrote before it ended is read below
		if err := r.drain(ctx); err != nil {
			return err
		}
		if maybeRotated || !running {
			rotated, err := r.reopen(ctx, running)
			if err != nil {
				return err
			}
			if rotated {
				continue
			}
		}
		if !running {
			return r.emit(r.rest)
		}
		if r.Flush != nil {
			r.Flush()
		}
		var settled <-chan time.Time
		if !r.replaced.IsZero() {
			settled = time.After(time.Until(r.replaced.Add(settleTime)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			maybeRotated = true
		case <-settled:
			maybeRotated = true
		case <-r.Wake:
		case event := <-changed:
			maybeRotated = event.Op != fsnotify.Write
		case err := <-failed:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch the log: %w", err)
			}
		}
	}
}

// drain writes all whole entries up to the end of the file.
func (r *reader) drain(ctx context.Context) error {
	for ctx.Err() == nil {
		part, err := r.buf.ReadSlice('\n')
		r.offset += int64(len(part))
		if err == nil && len(r.rest) == 0 {
			if err := r.emit(part); err != nil {
				return err
			}
			continue
		}
		r.rest = append(r.rest, part...)
		switch {
		case err == nil:
			line := r.rest
			r.rest = nil
			if err := r.emit(line); err != nil {
				return err
			}
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
	return ctx.Err()
}

// reopen goes on with the file that took the place of the one we read, if there
// is one and, while the container runs, it has been there for a while: the old
// one is read to its end first, because the runtime wrote to it until it had
// changed over.
func (r *reader) reopen(ctx context.Context, running bool) (bool, error) {
	ours, err := r.file.Stat()
	if err != nil {
		return false, err
	}
	next, err := r.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // between a rename and the runtime's reopening
	} else if err != nil {
		return false, err
	}
	theirs, err := next.Stat()
	if err != nil {
		return false, errors.Join(err, next.Close())
	}
	if os.SameFile(ours, theirs) {
		r.replaced = time.Time{} // the runtime could not change over, and it was put back
		truncated := ours.Size() < r.offset
		if truncated {
			if _, err := r.file.Seek(0, io.SeekStart); err != nil {
				return false, errors.Join(err, next.Close())
			}
			r.offset, r.rest = 0, nil
			r.buf.Reset(r.file)
		}
		return truncated, next.Close()
	}
	if r.replaced.IsZero() {
		r.replaced = time.Now()
	}
	if running && time.Since(r.replaced) < settleTime {
		return false, next.Close()
	}
	if err := r.drain(ctx); err != nil {
		return false, errors.Join(err, next.Close())
	}
	if err := errors.Join(r.emit(r.rest), r.file.Close()); err != nil {
		return false, errors.Join(err, next.Close())
	}
	r.file, r.offset, r.rest, r.replaced = next, 0, nil, time.Time{}
	r.buf.Reset(next)
	return true, nil
}

// emit writes one line of the file, if it is wanted.
func (r *reader) emit(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	entry, err := Parse(line)
	if err != nil {
		if r.Bad != nil {
			r.Bad(err)
		}
		return nil
	}
	begins := !r.open[entry.Stream]
	r.open[entry.Stream] = entry.Partial
	out := r.Stdout
	if entry.Stream == Stderr {
		out = r.Stderr
	}
	if out == nil || entry.Time.Before(r.Since) {
		return nil
	}
	if r.Timestamps && begins {
		if err := r.write(out, entry.Time.AppendFormat(nil, stampFormat+" ")); err != nil {
			return err
		}
	}
	if err := r.write(out, entry.Text); err != nil {
		return err
	}
	if !entry.Partial {
		return r.write(out, []byte{'\n'})
	}
	return nil
}

func (r *reader) write(out io.Writer, text []byte) error {
	if r.left >= 0 && int64(len(text)) > r.left {
		text = text[:r.left]
	}
	n, err := out.Write(text)
	if err != nil {
		return err
	}
	if r.left >= 0 {
		if r.left -= int64(n); r.left == 0 {
			return errLimit
		}
	}
	return nil
}
