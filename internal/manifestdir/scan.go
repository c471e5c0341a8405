package manifestdir

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// maxDepth is how deep nested folders are read.
const maxDepth = 16

// fresh is how young a file must be to be read again though it looks unchanged:
// two writes inside one tick of the filesystem's clock leave the same times.
const fresh = 2 * time.Second

// A scanner reads the folder. It parses a file only when it changed.
type scanner struct {
	dir       string
	recursive bool
	settle    time.Duration
	fsys      filesystem
	parser    *manifest.Parser
	check     func(manifest.Document) []manifest.Fault // may be nil
	cache     map[string]cached                        // by path from the folder
	cutOff    map[string]sighting                      // likewise
}

func newScanner(cfg Config) scanner {
	return scanner{
		dir: cfg.Dir, recursive: cfg.Recursive, settle: cfg.Settle, fsys: osFiles{},
		parser: cfg.Parser, check: cfg.Check, cache: map[string]cached{}, cutOff: map[string]sighting{},
	}
}

// cached is what a file said when it looked like this.
type cached struct {
	print fingerprint
	file  file
}

// A fingerprint tells whether a file is the one that was read.
type fingerprint struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // nanoseconds
}

// lookAt returns the fingerprint of what stands at path, all zero if nothing
// does. A link is not followed. Of a folder it is only who it is: entries come
// and go in the folders above ours.
func lookAt(path string) fingerprint {
	info, err := os.Lstat(path)
	if err != nil {
		return fingerprint{}
	}
	p := fingerprintOf(info)
	if info.IsDir() {
		return fingerprint{dev: p.dev, ino: p.ino}
	}
	return p
}

func fingerprintOf(info fs.FileInfo) fingerprint {
	p := fingerprint{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		p.dev, p.ino, p.ctime = st.Dev, st.Ino, st.Ctim.Nano()
	}
	return p
}

// scan looks at the whole folder once.
func (s *scanner) scan() reading {
	r := newReading()
	r.follow(s.dir)
	w := walk{scanner: s, reading: &r, above: map[fingerprint]bool{}}
	if err := w.folder("", 0); err != nil {
		r.failed = r.unreadable(filepath.Base(s.dir), err)
		if errors.Is(err, fs.ErrNotExist) {
			r.failed.Message = "the manifest folder " + s.dir + " does not exist"
			r.failed.Hint = "bring it back: what ran stays until then; an empty folder in its place ends it"
		}
		return r
	}
	maps.DeleteFunc(s.cache, func(name string, _ cached) bool { return !r.has(name) })
	maps.DeleteFunc(s.cutOff, func(name string, _ sighting) bool { return !r.has(name) })
	return r
}

func (r *reading) has(name string) bool {
	_, ok := r.files[name]
	return ok
}

// unreadable returns the fault of a file or folder that cannot be read. The
// end of such a trouble is no event of the folder, so it is looked for.
func (r *reading) unreadable(name string, err error) *manifest.Fault {
	r.troubled = r.troubled || !errors.Is(err, fs.ErrNotExist)
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("%s: %w", path.Op, path.Err)
	}
	f := manifest.Fault{
		File: name, Reason: manifest.ReasonUnreadable,
		Message: "cannot be read: " + err.Error(), Hint: "check its permissions; what ran stays",
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // only a link is there and not to be found
		f.Message, f.Hint = "a link to a file that is not there", "bring the file back or remove the link; what ran stays"
	case errors.Is(err, syscall.ELOOP):
		f.Hint = "it is a link that leads back to itself: remove it; what ran stays"
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ESTALE):
		f.Hint = "look at the disk or the network that it is on; what ran stays"
	}
	return &f
}

// A walk is one pass over the folder.
type walk struct {
	*scanner
	*reading
	above map[fingerprint]bool // folders that we are inside of
}

// folder reads one folder, named from the top.
func (w *walk) folder(name string, depth int) error {
	path := filepath.Join(w.dir, name)
	info, err := w.fsys.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "list", Path: path, Err: syscall.ENOTDIR}
	}
	id := fingerprintOf(info)
	id = fingerprint{dev: id.dev, ino: id.ino}
	if w.above[id] || depth > maxDepth {
		return nil // a link to a folder that it is in
	}
	w.above[id] = true
	defer delete(w.above, id)
	w.folders[path] = fingerprintOf(info)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		w.watch[real] = true
	}

	entries, err := w.fsys.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			w.entry(filepath.Join(name, e.Name()), e, depth)
		}
	}
	return nil
}

// entry reads what stands in a folder under a name that is not hidden.
func (w *walk) entry(name string, e fs.DirEntry, depth int) {
	path := filepath.Join(w.dir, name)
	if e.Type()&fs.ModeSymlink != 0 {
		w.follow(path)
	}
	info, err := w.fsys.Stat(path) // follows links, opens nothing
	switch {
	case errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink == 0:
		// Removed while we looked.
	case err != nil && manifest.IsManifest(e.Name()):
		w.files[name] = file{faults: []manifest.Fault{*w.unreadable(name, err)}}
	case err != nil:
		// It may be a folder, or a link to one, and what its files said stays.
		if w.recursive {
			w.nested(name, err)
		}
	case info.IsDir():
		if !w.recursive {
			w.ignored = append(w.ignored, name+"/")
			return
		}
		if err := w.folder(name, depth+1); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.nested(name, err)
		}
	case !manifest.IsManifest(e.Name()):
		w.ignored = append(w.ignored, name)
	case !info.Mode().IsRegular():
		w.files[name] = file{faults: []manifest.Fault{{
			File: name, Reason: manifest.ReasonUnreadable,
			Message: "not a regular file", Hint: "move it out of the manifest folder",
		}}}
	default:
		w.files[name] = w.load(name, path, info)
	}
}

// nested records a nested folder that cannot be read: what its files said stays.
func (w *walk) nested(name string, err error) {
	w.lost = append(w.lost, name)
	w.files[name] = file{faults: []manifest.Fault{*w.unreadable(name, err)}}
}

// load returns what a regular file says, from the cache if it has not changed.
func (w *walk) load(name, path string, info fs.FileInfo) file {
	print := fingerprintOf(info)
	if c, ok := w.cache[name]; ok && c.print == print && time.Since(info.ModTime()) > fresh {
		return c.file
	}
	data, err := w.fsys.ReadRegular(path)
	if err != nil {
		delete(w.cache, name)
		return file{faults: []manifest.Fault{*w.unreadable(name, err)}}
	}
	if left := w.unfinished(name, print, info.ModTime(), data); left > 0 {
		w.soonest(left)
		return file{unfinished: true}
	}
	f := w.parse(name, data)
	w.cache[name] = cached{print, f}
	return f
}

// soonest asks for another reading after a while.
func (r *reading) soonest(wait time.Duration) {
	if r.again == 0 || wait < r.again {
		r.again = wait
	}
}

func (s *scanner) parse(name string, data []byte) file {
	r := s.parser.Parse(name, data)
	f := file{faults: r.Faults}
	for _, d := range r.Documents {
		if s.check != nil {
			if faults := s.check(d); len(faults) > 0 {
				f.faults = append(f.faults, faults...)
				continue
			}
		}
		f.documents = append(f.documents, d)
	}
	return f
}

// follow notes what would change the meaning of a path: every symbolic link on
// the way, and the name at the end.
func (r *reading) follow(path string) {
	const most = 40 // links, as the kernel's own limit
	for range most {
		link := firstLink(path)
		if link == "" {
			break
		}
		r.note(link)
		target, err := os.Readlink(link)
		if err != nil {
			return
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = filepath.Join(target, strings.TrimPrefix(path, link))
	}
	// Of a path that is not there, note the first part that is missing.
	for path != "/" {
		if info, err := os.Stat(filepath.Dir(path)); err == nil && info.IsDir() {
			break
		}
		path = filepath.Dir(path)
	}
	r.note(path)
}

// note wants to know when the name at path becomes another thing.
func (r *reading) note(path string) {
	if dir := filepath.Dir(path); !r.watch[dir] {
		r.watch[dir] = false // events of other names do not matter
	}
	r.look[path] = lookAt(path)
}

// firstLink returns the first part of an absolute path that is a link, or "".
func firstLink(path string) string {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if info, err := os.Lstat(path[:i]); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return path[:i]
		}
	}
	return ""
}
