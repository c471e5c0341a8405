// Package pluginregistry registers the plugins that announce themselves by a
// Unix socket in a folder, as the drivers of CSI volumes do.
//
// It reads one folder and those below it, and asks each socket there who it is,
// over upstream's registration protocol. A handler for that type of plugin
// judges the answer and takes the plugin; the plugin is told how that ended. A
// plugin is let go of when its socket is removed, or another takes its place,
// and not when it only does not answer: its volumes stay.
//
//	socket appears ─► ask ─► validate ─► register ─► tell it: registered
//	                   ▲         │           │
//	                   └─ pause ─┴─ refused ─┘ (and it is told why)
//	socket goes ────► deregister
//
// What is there counts, not what was reported: file events only wake the one
// goroutine that lists the folder. Each socket is talked to in a goroutine of
// its own, for a bounded time, so that one that hangs holds up no other.
package pluginregistry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/retry"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// A Plugin is what a socket says of itself.
type Plugin struct {
	Name     string
	Endpoint string   // of its service; the registration socket if it names none
	Versions []string // of the protocol that it speaks
}

// A Handler takes the plugins of one type. It may be called for several plugins
// at once, and for one socket at a time.
type Handler interface {
	// Register takes a plugin or says why not; the plugin is told the error.
	Register(ctx context.Context, p Plugin) error
	// Deregister lets go of a plugin that Register took.
	Deregister(p Plugin)
}

// Config says where plugins announce themselves and who takes them.
type Config struct {
	Dir      string             // made if it is not there
	Handlers map[string]Handler // by upstream's names of types, such as CSIPlugin
	Log      *slog.Logger

	// Ask bounds a try to register one plugin but for its handler. Default 10 s,
	// upstream's time for the connection.
	Ask time.Duration
	// Period is how often the folder is listed though nothing was reported.
	// Default 10 s.
	Period time.Duration
	// FirstRetry and MaxRetry bound the pauses between tries. Default 500 ms and
	// 2 minutes, upstream's.
	FirstRetry, MaxRetry time.Duration
}

func (c Config) withDefaults() Config {
	c.Ask = cmp.Or(c.Ask, 10*time.Second)
	c.Period = cmp.Or(c.Period, 10*time.Second)
	c.FirstRetry = cmp.Or(c.FirstRetry, 500*time.Millisecond)
	c.MaxRetry = cmp.Or(c.MaxRetry, 2*time.Minute)
	return c
}

// A Registry keeps the plugins of one folder registered.
type Registry struct {
	cfg  Config
	wake wake.Bell

	mu struct {
		sync.Mutex
		sockets map[string]*socket // by path
	}
}

// socket is one path at which a plugin is or was. The registry's lock guards it.
type socket struct {
	path string
	is   identity // of the socket that is there; zero: gone
	was  identity // of the one that was asked last

	taken   *taken // nil: none is registered
	busy    bool   // a goroutine works on it
	due     time.Time
	fails   int
	err     error
	failing time.Time // since when, with err
}

// taken is a plugin that a handler took.
type taken struct {
	plugin  Plugin
	handler Handler
}

// New makes a Registry. It looks at nothing before Run.
func New(cfg Config) *Registry {
	r := &Registry{cfg: cfg.withDefaults(), wake: wake.NewBell()}
	r.mu.sockets = map[string]*socket{}
	return r
}

// Run registers plugins until ctx is done and every try has ended. Plugins stay
// registered: the next Run finds their sockets.
func (r *Registry) Run(ctx context.Context) error {
	if err := os.MkdirAll(r.cfg.Dir, 0o750); err != nil {
		return fmt.Errorf("folder of plugins' sockets: %w", err)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", r.cfg.Dir, err)
	}
	defer func() { _ = watcher.Close() }() // nothing was written
	var work sync.WaitGroup
	defer work.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.Events:
		case err := <-watcher.Errors: // an event may be lost: all are listed anyway
			r.cfg.Log.Debug("events of plugins' sockets were lost", "folder", r.cfg.Dir, "err", err)
		case <-r.wake:
		case <-timer.C:
		}
		r.list(watcher)
		timer.Reset(r.startDue(ctx, &work))
	}
	return nil
}

// list takes note of the sockets that are there.
func (r *Registry) list(watcher *fsnotify.Watcher) {
	found, folders, err := scan(r.cfg.Dir)
	if err != nil {
		r.cfg.Log.Warn("folder of plugins' sockets cannot be listed; trying again", "folder", r.cfg.Dir, "err", err)
	}
	for _, folder := range folders {
		if err := watcher.Add(folder); err != nil && !errors.Is(err, os.ErrNotExist) {
			r.cfg.Log.Debug("folder cannot be watched; it is listed now and then", "folder", folder, "err", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, is := range found {
		s := r.mu.sockets[path]
		if s == nil {
			s = &socket{path: path}
			r.mu.sockets[path] = s
		}
		r.noteLocked(s, is)
	}
	if err != nil {
		return // what is not seen may be there
	}
	for path, s := range r.mu.sockets {
		if _, there := found[path]; !there {
			r.noteLocked(s, identity{})
		}
	}
}

func (r *Registry) noteLocked(s *socket, is identity) {
	if s.is != is {
		s.is, s.due, s.fails = is, time.Now(), 0
	}
}

// startDue starts work on every socket that is due, and returns when to look
// again.
func (r *Registry) startDue(ctx context.Context, work *sync.WaitGroup) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, next := time.Now(), r.cfg.Period
	for path, s := range r.mu.sockets {
		switch wait := s.due.Sub(now); {
		case s.busy:
		case s.is == identity{} && s.taken == nil:
			delete(r.mu.sockets, path)
		case s.due.IsZero():
		case wait > 0:
			next = min(next, wait)
		default:
			s.busy = true
			work.Go(func() { r.work(ctx, s) })
		}
	}
	return next
}

// work brings one socket's plugin to what is there: a plugin whose socket is
// not the one it came by is let go of, and the socket that is there is asked.
func (r *Registry) work(ctx context.Context, s *socket) {
	r.mu.Lock()
	is, was, old := s.is, s.was, s.taken
	s.was = is
	r.mu.Unlock()
	log := r.cfg.Log.With("path", s.path)
	if old != nil && is != was {
		old.handler.Deregister(old.plugin)
		log.Info("plugin is gone", "object", old.plugin.Name)
		old = nil
	}
	var err error
	if (is != identity{} && old == nil) {
		old, err = r.register(ctx, s.path)
		if err == nil {
			log.Info("plugin is registered", "object", old.plugin.Name)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.busy, s.taken = false, old
	r.settleLocked(ctx, s, is, err)
	r.wake.Ring()
}

// settleLocked says when a socket is looked at next.
func (r *Registry) settleLocked(ctx context.Context, s *socket, is identity, err error) {
	if err != nil && ctx.Err() == nil && (s.err == nil || s.err.Error() != err.Error()) {
		r.cfg.Log.Warn("plugin is not registered; trying again", "path", s.path, "err", err)
	}
	if s.err == nil {
		s.failing = time.Now()
	}
	s.err = err
	switch {
	case s.is != is: // changed meanwhile
		s.due = time.Now()
	case err != nil:
		s.fails++
		s.due = time.Now().Add(retry.Pause(s.fails, r.cfg.FirstRetry, r.cfg.MaxRetry))
	default:
		s.fails, s.due = 0, time.Time{}
	}
}

// Faults returns which sockets have a plugin that is not registered, and why.
func (r *Registry) Faults() []fault.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	var faults []fault.Fault
	for path, s := range r.mu.sockets {
		if s.err != nil {
			faults = append(faults, fault.Fault{Object: "plugin " + path, Message: s.err.Error(), Since: s.failing})
		}
	}
	return faults
}
