package podfolder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ReadIn reads the file name below the folder dir, of at most limit bytes. A
// pod may have put anything there: a link is followed only within dir, and
// what is no regular file is an error, without waiting for it.
func (f *Folders) ReadIn(dir, name string, limit int64) (content []byte, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s in %s is not a regular file", name, dir)
	}
	content, err = io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(content)) > limit {
		return nil, fmt.Errorf("%s in %s has more than %d bytes", name, dir, limit)
	}
	return content, err
}
