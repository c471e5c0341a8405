// Package logging makes the program's one logger and sends what libraries log
// through klog out by the same door.
package logging

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"

	"k8s.io/klog/v2"
)

// New returns a logger that writes text lines of at least level to w, and
// routes klog to it. Libraries that log through klog are chatty and speak to
// their authors: their information goes out at debug level. What they say at
// klog's level 5 and above goes nowhere: from level 8 on they write out requests
// with all that is in them, Secrets and tokens included.
//
// A library may end the process (klog.Fatal): the API server does when one of
// its start hooks fails. That is logged as an error, with what it said last.
func New(w io.Writer, level slog.Leveler) *slog.Logger {
	return of(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// NewJSON is New with one JSON object a line.
func NewJSON(w io.Writer, level slog.Leveler) *slog.Logger {
	return of(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

// of returns the logger of a handler, and routes klog to it.
func of(handler slog.Handler) *slog.Logger {
	log := slog.New(handler)
	said := new(atomic.Pointer[string])
	klog.SetSlogLogger(slog.New(demoted{handler, said}).With("from", "library"))
	klog.OsExit = func(code int) {
		last := "nothing"
		if text := said.Load(); text != nil {
			last = *text
		}
		log.Error("a library ends the process", "exitCode", code, "said", last)
		exit(code)
	}
	return log
}

var exit = klog.OsExit

// demoted lowers every record below warning to debug level. klog's last words
// before it ends the process are among them, at no level of their own.
type demoted struct {
	slog.Handler
	said *atomic.Pointer[string] // the last record, whether or not it is shown
}

// Enabled lets information through to Handle, which may have to remember it.
func (d demoted) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || level >= slog.LevelDebug && d.Handler.Enabled(ctx, level)
}

func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	d.said.Store(&r.Message)
	if r.Level = demote(r.Level); !d.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return d.Handler.Handle(ctx, r)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs), d.said}
}

func (d demoted) WithGroup(name string) slog.Handler {
	return demoted{d.Handler.WithGroup(name), d.said}
}

func demote(level slog.Level) slog.Level {
	if level < slog.LevelWarn {
		return slog.LevelDebug
	}
	return level
}
