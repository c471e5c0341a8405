// Package logrotate keeps the logs of running containers from growing without
// bound: it renames one that has grown too large, has the runtime open it anew,
// compresses what was renamed before and removes the oldest.
//
// It reads which containers run, and looks at the sizes of their logs once an
// interval. No line is lost: the runtime goes on writing to the renamed file
// until it opens the new one, and a rename without that, left by an agent that
// died in between, is finished at the next look.
package logrotate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// runtime opens a running container's log anew.
type runtime interface {
	ReopenLog(ctx context.Context, id string) error
}

// reader tells of logs, by their full path. A log that is not there is
// fs.ErrNotExist.
type reader interface {
	LogSize(path string) (bytes int64, err error)
	// RotatedLogs returns the paths of everything that a log was rotated to.
	RotatedLogs(path string) ([]string, error)
}

// writer changes rotated logs.
type writer interface {
	// RenameLog gives a log another name in its folder. One that is there
	// already is an error, and stays.
	RenameLog(from, to string) error
	// CompressLog puts path.gz in the place of path, by way of path.gz.tmp.
	CompressLog(path string) error
	RemoveFile(path string) error
}

// Config says what is rotated and by whom. Everything is required but Policy.
type Config struct {
	Policy  Policy // zero: DefaultPolicy
	Runtime runtime
	Reader  reader
	Writer  writer
	// Containers returns the containers that run.
	Containers func() []observed.ContainerStatus
	Log        *slog.Logger
}

// A Rotator rotates logs.
type Rotator struct {
	cfg Config
	log *slog.Logger

	mu     sync.Mutex
	failed map[string]string // guarded by mu: by container, why its log was not rotated, which was said
}

// New returns a Rotator that does nothing until Run.
func New(cfg Config) *Rotator {
	if cfg.Policy == (Policy{}) {
		cfg.Policy = DefaultPolicy()
	}
	return &Rotator{cfg: cfg, log: cfg.Log, failed: map[string]string{}}
}

// Run looks once an interval until ctx is done.
func (r *Rotator) Run(ctx context.Context) error {
	if r.cfg.Policy.MaxSize < 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(r.cfg.Policy.Interval)
	defer tick.Stop()
	for {
		r.lookAtAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// lookAtAll looks at every running container's log, at most Workers at once.
func (r *Rotator) lookAtAll(ctx context.Context) {
	containers := r.cfg.Containers()
	r.forget(containers)
	next := make(chan observed.ContainerStatus)
	var workers sync.WaitGroup
	for range min(r.cfg.Policy.Workers, len(containers)) {
		workers.Go(func() {
			for c := range next {
				r.note(ctx, c, r.lookAt(ctx, c.ID, c.LogPath))
			}
		})
	}
	for _, c := range containers {
		if c.LogPath != "" {
			next <- c
		}
	}
	close(next)
	workers.Wait()
}

// lookAt rotates one log if it has grown too large.
func (r *Rotator) lookAt(ctx context.Context, id, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	size, err := r.cfg.Reader.LogSize(path)
	if errors.Is(err, fs.ErrNotExist) {
		// It was renamed and not opened anew.
		return r.cfg.Runtime.ReopenLog(ctx, id)
	}
	if err != nil || size < r.cfg.Policy.MaxSize {
		return err
	}
	return r.rotate(ctx, id, path)
}

func (r *Rotator) rotate(ctx context.Context, id, path string) error {
	rotated, err := r.cfg.Reader.RotatedLogs(path)
	if err != nil {
		return err
	}
	remove, compress := tidy(rotated, r.cfg.Policy.MaxFiles)
	for _, name := range remove {
		if err := r.cfg.Writer.RemoveFile(name); err != nil {
			return err
		}
	}
	for _, name := range compress {
		if err := r.cfg.Writer.CompressLog(name); err != nil {
			return fmt.Errorf("compress %s: %w", name, err)
		}
	}
	name := nextName(path, rotated, time.Now())
	if err := r.cfg.Writer.RenameLog(path, name); err != nil {
		return err
	}
	if err := r.cfg.Runtime.ReopenLog(ctx, id); err != nil {
		// Readers find it by its name until the runtime answers again. If the
		// runtime has opened a new one after all, that one stays.
		if back := r.cfg.Writer.RenameLog(name, path); !errors.Is(back, fs.ErrExist) {
			err = errors.Join(err, back)
		}
		return err
	}
	r.log.Debug("log rotated", "container", id, "path", name)
	return nil
}

// note says once that a log is not rotated, and why, and once that it is again.
func (r *Rotator) note(ctx context.Context, c observed.ContainerStatus, err error) {
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was, failing := r.failed[c.ID]
	switch {
	case err == nil && failing:
		delete(r.failed, c.ID)
		r.log.Info("log can be rotated again", "container", c.ID, "path", c.LogPath)
	case err != nil && err.Error() != was:
		r.failed[c.ID] = err.Error()
		r.log.Warn("log is not rotated, trying again", "container", c.ID, "path", c.LogPath, "err", err)
	}
}

// forget drops what is remembered of containers that do not run any more.
func (r *Rotator) forget(running []observed.ContainerStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failed) == 0 {
		return
	}
	old := r.failed
	r.failed = map[string]string{}
	for _, c := range running {
		if why, ok := old[c.ID]; ok {
			r.failed[c.ID] = why
		}
	}
}
