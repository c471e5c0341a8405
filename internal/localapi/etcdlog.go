package localapi

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger sends etcd's log to log. etcd speaks to operators of clusters:
// all but errors goes out at debug level, and errors too once stopping is
// set, because etcd finds it an error to be stopped. It panics where etcd
// would end the process.
func zapLogger(log *slog.Logger, stopping *atomic.Bool) *zap.Logger {
	return zap.New(&zapCore{log.With("from", "etcd"), stopping}, zap.WithFatalHook(zapcore.WriteThenPanic))
}

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
	r := slog.NewRecord(e.Time, c.level(e.Level), e.Message, 0)
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
