package manifestdir

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// A watch tells when something happens in a set of folders. Where the kernel
// gives no events, changes are still seen by replaced, and by the period.
type watch struct {
	log     *slog.Logger
	begin   func() (*fsnotify.Watcher, error)
	watcher *fsnotify.Watcher // nil: not started, or not to be had
	dirs    map[string]bool   // watched, and whether every name in it matters
	read    reading           // what was last read
	warned  bool
}

func newWatch(log *slog.Logger) *watch {
	return &watch{log: log, begin: fsnotify.NewWatcher, dirs: map[string]bool{}}
}

func (w *watch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *watch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

// update watches what a reading wants and nothing else. It reports whether a
// folder was not watched before.
func (w *watch) update(r reading) (added bool) {
	if w.watcher == nil {
		w.open()
	}
	for dir := range r.watch {
		if _, ok := w.dirs[dir]; !ok {
			added = true
			w.add(dir)
		}
	}
	for dir := range w.dirs {
		if _, ok := r.watch[dir]; !ok && w.watcher != nil {
			// It may be gone by itself, which is as good.
			_ = w.watcher.Remove(dir)
		}
	}
	w.dirs, w.read = r.watch, r
	return added
}

// matters reports whether an event of this path may change a reading.
func (w *watch) matters(path string) bool {
	if w.dirs[filepath.Dir(path)] || w.dirs[path] {
		return true
	}
	_, ok := w.read.look[path]
	return ok
}

func (w *watch) open() {
	watcher, err := w.begin()
	if err != nil {
		w.warn(err)
		return
	}
	w.watcher = watcher
}

func (w *watch) add(dir string) {
	if w.watcher == nil {
		return
	}
	if err := w.watcher.Add(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.warn(err)
	}
}

// warn says once that changes will be seen late.
func (w *watch) warn(err error) {
	if !w.warned {
		w.warned = true
		w.log.Warn("no file events: edits are seen at the next periodic reading", "err", err)
	}
}

// replaced reports whether a folder or link is another than was read, or a
// folder has other entries. The kernel's events follow the folder and not its
// name, and so miss the first.
func (w *watch) replaced() bool {
	for path, was := range w.read.look {
		if lookAt(path) != was {
			return true
		}
	}
	for path, was := range w.read.folders {
		if info, err := os.Stat(path); err != nil || fingerprintOf(info) != was {
			return true
		}
	}
	return false
}

// close stops watching; update begins anew.
func (w *watch) close() {
	if w.watcher != nil {
		// Its only failure is to have been closed before.
		_ = w.watcher.Close()
		w.watcher = nil
	}
	w.dirs = nil
}
