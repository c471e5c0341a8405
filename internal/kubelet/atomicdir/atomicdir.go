// Package atomicdir replaces the content of a folder at one moment, so that a
// reader sees all of the old files or all of the new ones.
//
// The layout is the one that the upstream kubelet's volumes have, and that
// programs watch for:
//
//	dir/..2026_01_02_15_04_05.123456789/   the files themselves
//	dir/..data                             link to that folder; replaced by one rename
//	dir/NAME                               link to ..data/NAME, one for each top name
//
// A write that changes nothing touches nothing. A crash at any step leaves the
// old or the new content complete; what the crashed write left lying is removed
// by the next one. Nothing is written outside dir, whatever links somebody
// planted in it. Two writes to one folder must not overlap: the caller sees to that.
package atomicdir

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

const (
	dataLink = "..data"
	newLink  = "..data_tmp"

	maxPath = 4096 // bytes, PATH_MAX
	maxName = 255  // bytes, NAME_MAX
)

// A File is the content and the permissions of one file.
type File struct {
	Data []byte
	Mode fs.FileMode // permission bits only
	UID  *int64      // owner; nil: that of the process
}

// Options says how folders and files come out.
type Options struct {
	GID *int64 // group of every file and folder, folders also set-group-ID; nil: that of the process
}

// Write makes files, by their slash-separated paths below dir, the whole
// content of dir, and reports whether it had to change anything. The folder
// must exist. Other entries of dir whose names do not start with ".." and that
// are no links into the content are left alone.
func Write(dir string, files map[string]File, opts Options) (changed bool, err error) {
	clean, err := cleaned(files)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", dir, err)
	}
	w := writer{root, opts}
	changed, err = w.write(clean)
	if err = errors.Join(err, root.Close()); err != nil {
		return changed, fmt.Errorf("write %s: %w", dir, err)
	}
	return changed, nil
}

// Complete reports whether dir holds a content that some Write published.
func Complete(dir string) bool {
	info, err := os.Stat(path.Join(dir, dataLink))
	return err == nil && info.IsDir()
}

// CheckPath returns an error if name cannot be the path of a file in the
// content: it must be relative, without "..", and must not start with "..".
func CheckPath(name string) error {
	switch {
	case name == "":
		return errors.New("empty file path")
	case path.IsAbs(name):
		return fmt.Errorf("file path %q is absolute", name)
	case len(name) > maxPath:
		return fmt.Errorf("file path %.40q... is longer than %d bytes", name, maxPath)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("file path %q holds a null byte", name)
	case strings.HasPrefix(name, ".."), strings.HasPrefix(path.Clean(name), ".."):
		return fmt.Errorf("file path %q starts with \"..\"", name)
	case path.Clean(name) == ".":
		return fmt.Errorf("file path %q names no file", name)
	}
	for item := range strings.SplitSeq(name, "/") {
		if item == ".." {
			return fmt.Errorf("file path %q contains \"..\"", name)
		}
		if len(item) > maxName {
			return fmt.Errorf("file path %.40q... has a name of more than %d bytes", name, maxName)
		}
	}
	return nil
}

// cleaned returns files by their shortest paths. A file and a folder of one
// name, or two spellings of one path, cannot both be.
func cleaned(files map[string]File) (map[string]File, error) {
	clean := make(map[string]File, len(files))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := CheckPath(name); err != nil {
			return nil, err
		}
		if _, twice := clean[path.Clean(name)]; twice {
			return nil, fmt.Errorf("file path %q is given twice", path.Clean(name))
		}
		clean[path.Clean(name)] = files[name]
	}
	for name := range clean {
		for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
			if _, ok := clean[parent]; ok {
				return nil, fmt.Errorf("%q is a file and also the folder of %q", parent, name)
			}
		}
	}
	return clean, nil
}

// writer is one write into the folder root.
type writer struct {
	root *os.Root
	opts Options
}

func (w writer) write(files map[string]File) (changed bool, err error) {
	current, err := w.current()
	if err != nil {
		return false, err
	}
	if current == "" || !w.same(current, files) {
		staged, err := w.stage(files)
		if err != nil {
			return false, errors.Join(err, w.removeStaged(staged))
		}
		if err := w.publish(staged); err != nil {
			return false, errors.Join(err, w.removeStaged(staged))
		}
		current, changed = staged, true
	}
	linked, err := w.link(files)
	if err != nil {
		return changed, err
	}
	removed, err := w.prune(current, files)
	return changed || linked || removed, err
}

// current returns the name of the published folder, or "" if none is.
func (w writer) current() (string, error) {
	target, err := w.root.Readlink(dataLink)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if target != path.Base(target) || !strings.HasPrefix(target, "..") || target == ".." || target == dataLink {
		return "", nil // not a link of ours: replaced by the next publish
	}
	if info, err := w.root.Lstat(target); err != nil || !info.IsDir() {
		return "", nil
	}
	return target, nil
}

// same reports whether the published folder holds exactly files. Whatever
// cannot be read counts as different, and is written anew.
func (w writer) same(current string, files map[string]File) bool {
	left := len(files)
	err := fs.WalkDir(w.root.FS(), current, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, wanted := files[strings.TrimPrefix(name, current+"/")]
		if !wanted || !w.sameFile(name, file) {
			return fs.ErrInvalid // any error: not the same
		}
		left--
		return nil
	})
	return err == nil && left == 0
}

func (w writer) sameFile(name string, file File) bool {
	info, err := w.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != file.Mode.Perm() || info.Size() != int64(len(file.Data)) {
		return false
	}
	if !sameOwner(info, file.UID, w.opts.GID) {
		return false
	}
	f, err := w.root.Open(name)
	if err != nil {
		return false
	}
	data, err := io.ReadAll(f)
	return errors.Join(err, f.Close()) == nil && bytes.Equal(data, file.Data)
}

// stage writes files into a new folder and returns its name, which is "" only
// if the folder could not be made.
func (w writer) stage(files map[string]File) (string, error) {
	staged := time.Now().UTC().Format("..2006_01_02_15_04_05.000000000")
	for n := 0; ; n++ { // a clock that stands still, or was set back, must not stop an update
		name := staged
		if n > 0 {
			name = fmt.Sprintf("%s_%d", staged, n)
		}
		err := w.root.Mkdir(name, 0o700)
		if errors.Is(err, fs.ErrExist) && n < 1000 {
			continue
		}
		if err != nil {
			return "", err
		}
		staged = name
		break
	}
	if err := w.openDir(staged); err != nil {
		return staged, err
	}
	for name, file := range files {
		if err := w.stageFile(staged, name, file); err != nil {
			return staged, err
		}
	}
	return staged, nil
}

func (w writer) stageFile(staged, name string, file File) error {
	full := staged
	for dir := range strings.SplitSeq(path.Dir(name), "/") {
		if dir == "." {
			continue
		}
		full = path.Join(full, dir)
		err := w.root.Mkdir(full, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := w.openDir(full); err != nil {
			return err
		}
	}
	full = path.Join(staged, name)
	f, err := w.root.OpenFile(full, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(file.Data)
	// The owner first: a change of owner clears set-ID bits, and content must
	// not be readable by others before it belongs to whom it should.
	err = errors.Join(err, f.Chown(id(file.UID), id(w.opts.GID)), f.Chmod(file.Mode.Perm()), f.Close())
	return err
}

// openDir gives a new folder its group and lets everybody pass through it:
// upstream's volumes do, and the permissions of the files decide.
func (w writer) openDir(name string) error {
	mode := fs.FileMode(0o755)
	if w.opts.GID != nil {
		if err := w.root.Chown(name, -1, id(w.opts.GID)); err != nil {
			return err
		}
		mode |= fs.ModeSetgid
	}
	return w.root.Chmod(name, mode)
}

// publish makes the staged folder the content.
func (w writer) publish(staged string) error {
	if err := w.root.Remove(newLink); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := w.root.Symlink(staged, newLink); err != nil {
		return err
	}
	return w.root.Rename(newLink, dataLink)
}

func (w writer) removeStaged(staged string) error {
	if staged == "" {
		return nil
	}
	return w.root.RemoveAll(staged)
}

// link makes the names that users see and that do not exist yet.
func (w writer) link(files map[string]File) (changed bool, err error) {
	for name := range files {
		top, _, _ := strings.Cut(name, "/")
		want := path.Join(dataLink, top)
		if got, err := w.root.Readlink(top); err == nil && got == want {
			continue
		}
		if err := w.clear(top); err != nil {
			return changed, err
		}
		if err := w.root.Symlink(want, top); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// clear makes way for a link: another link goes, and so does an empty folder,
// which was made where a key was missing that somebody mounted. Whatever else
// has this name is not ours.
func (w writer) clear(top string) error {
	info, err := w.root.Lstat(top)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%q is in the way of a file of the volume: remove it", top)
	}
	if err := w.root.Remove(top); err != nil {
		return fmt.Errorf("%q is in the way of a file of the volume: %w", top, err)
	}
	return nil
}

// prune removes the links of files that are gone, and what earlier writes left.
func (w writer) prune(current string, files map[string]File) (changed bool, err error) {
	tops := map[string]bool{}
	for name := range files {
		top, _, _ := strings.Cut(name, "/")
		tops[top] = true
	}
	entries, err := fs.ReadDir(w.root.FS(), ".")
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case name == dataLink, name == current, tops[name]:
		case strings.HasPrefix(name, ".."):
			err = errors.Join(err, w.root.RemoveAll(name))
			changed = true
		case entry.Type()&fs.ModeSymlink != 0:
			if target, _ := w.root.Readlink(name); target == path.Join(dataLink, name) {
				err = errors.Join(err, w.root.Remove(name))
				changed = true
			}
		}
	}
	return changed, err
}

// id returns n for chown: -1 changes nothing.
func id(n *int64) int {
	if n == nil {
		return -1
	}
	return int(*n)
}
