package podfolder

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Logs are opened below the folder of all logs, whatever links lie in it: a pod
// may have it mounted.

// inLogs calls do with the folder of all logs and a log's path in it.
func (f *Folders) inLogs(path string, do func(dir *os.Root, name string) error) error {
	name, err := filepath.Rel(f.logs, path)
	if err != nil || !filepath.IsLocal(name) {
		return fmt.Errorf("log %q is outside %q", path, f.logs)
	}
	dir, err := os.OpenRoot(f.logs)
	if err != nil {
		return err
	}
	return errors.Join(do(dir, name), dir.Close())
}

// LogSize returns the size in bytes of a log. One that is not there is
// fs.ErrNotExist; anything but a regular file is an error.
func (f *Folders) LogSize(path string) (size int64, err error) {
	err = f.inLogs(path, func(dir *os.Root, name string) error {
		info, err := dir.Lstat(name)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("log %q is no regular file", path)
		}
		size = info.Size()
		return nil
	})
	return size, err
}

// RotatedLogs returns the paths of the rotated parts of a log, whatever state
// they are in.
func (f *Folders) RotatedLogs(path string) (rotated []string, err error) {
	err = f.inLogs(path, func(dir *os.Root, name string) error {
		entries, err := fs.ReadDir(dir.FS(), filepath.Dir(name))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), filepath.Base(name)+".") {
				rotated = append(rotated, filepath.Join(filepath.Dir(path), e.Name()))
			}
		}
		return nil
	})
	return rotated, err
}

// RenameLog gives a log another name in its folder. If there is a file of that
// name it returns an fs.ErrExist and changes nothing.
func (f *Folders) RenameLog(from, to string) error {
	return f.inLogs(from, func(dir *os.Root, name string) error {
		// A link, unlike a rename, never takes another file's place.
		next := filepath.Join(filepath.Dir(name), filepath.Base(to))
		if err := dir.Link(name, next); err != nil {
			return err
		}
		return dir.Remove(name)
	})
}

// RemoveFile removes a rotated log. One that is not there is no error.
func (f *Folders) RemoveFile(path string) error {
	return f.inLogs(path, func(dir *os.Root, name string) error {
		if err := dir.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// CompressLog puts path.gz, of the same mode, in the place of path.
func (f *Folders) CompressLog(path string) error {
	return f.inLogs(path, func(dir *os.Root, name string) error {
		half := name + ".gz.tmp"
		if err := compress(dir, name, half); err != nil {
			if gone := dir.Remove(half); !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
			return err
		}
		if err := dir.Rename(half, name+".gz"); err != nil {
			return err
		}
		return dir.Remove(name)
	})
}

func compress(dir *os.Root, name, to string) error {
	in, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%q is no regular file", name)
	}
	out, err := dir.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(out)
	_, err = io.Copy(zip, in)
	return errors.Join(err, zip.Close(), out.Close())
}
