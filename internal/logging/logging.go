// Package logging makes the program's one logger and sends what libraries log
// through klog out by the same door.
package logging

import (
	"context"
	"io"
	"log/slog"

	"k8s.io/klog/v2"
)

// New returns a logger that writes text lines of at least level to w, and
// routes klog to it. Libraries that log through klog are chatty and speak to
// their authors: their information goes out at debug level. What they say at
// klog's level 5 and above goes nowhere: from level 8 on they write out requests
// with all that is in them, Secrets and tokens included.
func New(w io.Writer, level slog.Leveler) *slog.Logger {
	handler := slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})
	klog.SetSlogLogger(slog.New(demoted{handler}).With("from", "library"))
	return slog.New(handler)
}

// demoted lowers every record below warning to debug level.
type demoted struct{ slog.Handler }

func (d demoted) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelDebug && d.Handler.Enabled(ctx, demote(level))
}

func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	r.Level = demote(r.Level)
	return d.Handler.Handle(ctx, r)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}

func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }

func demote(level slog.Level) slog.Level {
	if level < slog.LevelWarn {
		return slog.LevelDebug
	}
	return level
}
