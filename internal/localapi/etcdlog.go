package localapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// A death is how the store ended, if it ended by its own hand. etcd ends its
// process, or panics in a goroutine where nobody can recover, when it cannot
// write, or cannot read what it wrote.
type death struct {
	stopping atomic.Bool // set before the store is stopped: etcd finds that an error
	once     sync.Once
	done     chan struct{} // closed when it died
	err      error         // then: why
}

func newDeath() *death { return &death{done: make(chan struct{})} }

// OnWrite is called in place of ending the process. It never returns: the
// goroutine that cannot go on must not, and what waits for it must not go on
// either. Nothing is acknowledged from then on.
func (d *death) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	d.once.Do(func() {
		d.err = errors.New(entry.Message)
		for _, f := range fields {
			if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
				d.err = fmt.Errorf("%s: %w", entry.Message, err)
			}
		}
		close(d.done)
	})
	select {}
}

// zapLogger sends etcd's log to log. etcd speaks to operators of clusters:
// all but errors goes out at debug level, and errors too once it is stopping.
// Where etcd would end the process or panic, it dies instead.
func zapLogger(log *slog.Logger, death *death) *zap.Logger {
	return zap.New(&zapCore{log.With("from", "etcd"), &death.stopping}, zap.WithFatalHook(death), zap.WithPanicHook(death))
}

// beforeCommit is what etcd finds an error in the first moment of a new store,
// as its database is a little behind its log; it tries again.
const beforeCommit = "failed to update storage version"

// zapCore is a zapcore.Core that writes to a slog.Logger.
type zapCore struct {
	log      *slog.Logger
	stopping *atomic.Bool
}

func (c *zapCore) Enabled(level zapcore.Level) bool {
	// etcd's own debug level has lines for every transaction.
	return level > zapcore.DebugLevel && c.log.Enabled(context.TODO(), c.level(level)) //nolint:forbidigo // zap has no context to pass
}

func (c *zapCore) With(fields []zapcore.Field) zapcore.Core {
	return &zapCore{slog.New(c.log.Handler().WithAttrs(attrs(fields))), c.stopping}
}

func (c *zapCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := c.level(e.Level)
	if e.Message == beforeCommit {
		level = slog.LevelDebug
	}
	if !c.log.Enabled(context.TODO(), level) { //nolint:forbidigo // zap has no context to pass
		return nil
	}
	r := slog.NewRecord(e.Time, level, e.Message, 0)
	r.AddAttrs(attrs(fields)...)
	return c.log.Handler().Handle(context.TODO(), r) //nolint:forbidigo // zap has no context to pass
}

func (c *zapCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(enc)
	}
	out := make([]slog.Attr, 0, len(enc.Fields))
	for _, f := range fields {
		if v, ok := enc.Fields[f.Key]; ok {
			out = append(out, slog.Any(f.Key, v))
		}
	}
	return out
}

func (c *zapCore) level(level zapcore.Level) slog.Level {
	if level >= zapcore.ErrorLevel && !c.stopping.Load() {
		return slog.LevelError
	}
	return slog.LevelDebug
}
