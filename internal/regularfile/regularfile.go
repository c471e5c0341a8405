// Package regularfile opens files that somebody else may have put in place: a
// pipe whose other end nobody opens, or a device, must not hold up the reader.
package regularfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Open opens a regular file for reading, without waiting, and returns what it
// is. It looks at what it opened, as something else may have taken the file's
// place a moment ago; anything but a regular file is an error that names the
// path. flags are more of package syscall's, such as O_NOFOLLOW.
func Open(path string, flags int) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|flags, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	return f, info, nil
}

// ReadAll reads a regular file of at most limit bytes, as Open opens it. A longer
// one is an error that names the path.
func ReadAll(path string, limit int64) (data []byte, info fs.FileInfo, err error) {
	f, info, err := Open(path, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	if err != nil {
		return nil, nil, err
	}
	return data, info, nil
}
