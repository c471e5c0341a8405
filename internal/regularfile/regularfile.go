// Package regularfile opens files that somebody else may have put in place: a
// pipe whose other end nobody opens, or a device, must not hold up the reader.
package regularfile

import (
	"fmt"
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
