package imagedir

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// endings are those of the archives that are imported.
var endings = []string{".tar", ".tar.gz", ".tgz"}

// otherEndings are those of archives that nothing here decompresses.
var otherEndings = []string{".tar.zst", ".tar.xz", ".tar.bz2", ".txz", ".tzst", ".tbz2", ".tar.lz4", ".zip"}

func ends(name string, endings []string) bool {
	for _, e := range endings {
		if strings.HasSuffix(strings.ToLower(name), e) {
			return true
		}
	}
	return false
}

// scan looks at the folder. One that cannot be read changes nothing but its
// fault.
func (d *Dir) scan(now time.Time) {
	entries, err := os.ReadDir(d.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) && len(d.records) == 0 {
		err = nil // as good as empty
	}
	d.judge("", err, "put it back, or make it readable; the images that came from it stay")
	if err != nil {
		return
	}
	files := map[string]sight{}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue // a tool's own, such as a copy under way
		}
		info, err := os.Stat(filepath.Join(d.cfg.Dir, name)) // a link counts for its target
		switch {
		case errors.Is(err, fs.ErrNotExist) && e.Type() != fs.ModeSymlink: // it has just gone
		case !ends(name, endings) && !ends(name, otherEndings), err == nil && !info.Mode().IsRegular():
			d.ignore(name)
		default:
			files[name] = d.see(name, info, err, now)
		}
	}
	d.files = files
	d.miss(now)
	d.heal()
}

// see returns what is known of a file, and says what is wrong with its kind.
func (d *Dir) see(name string, info fs.FileInfo, err error, now time.Time) sight {
	switch {
	case err != nil:
		d.judge(name, err, "remove the link, or mend it")
	case ends(name, otherEndings):
		d.judge(name, errors.New("an archive that is compressed like this is not imported"), "decompress it, or compress it with gzip")
	case d.cfg.Runtime == nil:
		d.judge(name, errors.New(d.cfg.Unused.Message), d.cfg.Unused.Hint+" "+filepath.Join(d.cfg.Dir, name))
	default:
		s := sight{look: look{info.Size(), info.ModTime()}, since: now}
		if old, ok := d.files[name]; ok && !old.bad && old.same(s.look) {
			return old
		}
		return s
	}
	return sight{bad: true}
}

// ignore tells once of a file that is no archive.
func (d *Dir) ignore(name string) {
	if !d.ignored[name] {
		d.ignored[name] = true
		d.log.Info("not an image archive: ignored", "file", name)
	}
}

// miss notes which imported files are gone, and which are back.
func (d *Dir) miss(now time.Time) {
	for name, r := range d.records {
		_, there := d.files[name]
		switch {
		case there:
			r.gone = time.Time{}
		case r.gone.IsZero():
			r.gone = now
		}
		d.records[name] = r
	}
}

// heal drops the faults of files that are gone, or again as they were when they
// were imported.
func (d *Dir) heal() {
	for name := range d.faults {
		s, there := d.files[name]
		r, known := d.records[name]
		if name != "" && (!there || known && !s.bad && s.failures == 0 && r.same(s.look)) {
			d.judge(name, nil, "")
		}
	}
}

// A watch tells when something happens in a folder. Where the kernel gives no
// events, the period does.
type watch struct {
	open    func() (*fsnotify.Watcher, error)
	watcher *fsnotify.Watcher // nil: not open
	dir     fs.FileInfo       // the folder that is watched
	warned  bool
}

// follow watches the folder that bears the name now.
func (w *watch) follow(path string, log *slog.Logger) {
	info, err := os.Stat(path)
	if err != nil || w.watcher != nil && os.SameFile(info, w.dir) {
		return // none to watch, or it is watched
	}
	w.close()
	watcher, err := w.open()
	if err == nil {
		w.watcher, w.dir = watcher, info
		err = watcher.Add(path)
	}
	if err != nil && !w.warned {
		w.warned = true
		log.Warn("no file events: image archives are seen at the next periodic look", "err", err)
	}
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

// gather takes events for some time, and reports whether ctx goes on.
func (w *watch) gather(ctx context.Context, pause time.Duration) bool {
	for end := time.After(pause); ; {
		select {
		case <-ctx.Done():
			return false
		case <-end:
			return true
		case <-w.events():
		}
	}
}

func (w *watch) close() {
	if w.watcher != nil {
		// Its only failure is to have been closed before.
		_ = w.watcher.Close()
		w.watcher = nil
	}
}
