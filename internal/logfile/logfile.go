// Package logfile bounds the file that this process logs to, its standard
// error.
//
// When the file has grown too large it gets the end .1, in the place of the one
// before, and a new file takes its place under the same descriptor: no line is
// lost or cut. What is started by this process later logs to the new file.
package logfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Config says which file it is. Required but what says otherwise.
type Config struct {
	Path string   // of the file; absolute
	File *os.File // is written to: standard error, but in tests
	Log  *slog.Logger

	MaxSize int64         // in bytes; default 16 MiB
	Period  time.Duration // between two looks at the size; default 30 s
}

// A Bound keeps one file within its size.
type Bound struct{ cfg Config }

// New returns a Bound that does nothing until Run.
func New(cfg Config) *Bound {
	cfg.MaxSize = cmp.Or(cfg.MaxSize, 16<<20)
	cfg.Period = cmp.Or(cfg.Period, 30*time.Second)
	return &Bound{cfg}
}

// Run looks at once and then once a period, until ctx is done.
func (b *Bound) Run(ctx context.Context) error {
	tick := time.NewTicker(b.cfg.Period)
	defer tick.Stop()
	failing := false
	for {
		err := b.look()
		if err != nil && !failing {
			b.cfg.Log.Warn("the log grows without bound, trying again", "path", b.cfg.Path, "err", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look replaces the file if it is too large, or not at its place any more.
func (b *Bound) look() error {
	open, err := b.cfg.File.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(b.cfg.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // somebody else moved it
		return b.replace()
	case err != nil:
		return err
	case !os.SameFile(open, there):
		return b.replace()
	case open.Size() <= b.cfg.MaxSize:
		return nil
	}
	if err := os.Rename(b.cfg.Path, b.cfg.Path+".1"); err != nil {
		return err
	}
	return b.replace()
}

// replace has the descriptor write to the file at the path.
func (b *Bound) replace() error {
	next, err := os.OpenFile(b.cfg.Path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	defer next.Close()
	if err := unix.Dup3(int(next.Fd()), int(b.cfg.File.Fd()), 0); err != nil {
		return fmt.Errorf("put the new log in the place of the old: %w", err)
	}
	return nil
}
