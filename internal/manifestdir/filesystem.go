package manifestdir

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// filesystem is what the scanner asks of the disk. All but tests use osFiles.
type filesystem interface {
	// Stat follows links and opens nothing.
	Stat(path string) (fs.FileInfo, error)
	ReadDir(path string) ([]fs.DirEntry, error)
	// ReadRegular reads a regular file, or one byte more than the most that a
	// manifest may have. It never waits: what is no regular file is an error.
	ReadRegular(path string) ([]byte, error)
}

type osFiles struct{}

func (osFiles) Stat(path string) (fs.FileInfo, error)      { return os.Stat(path) }
func (osFiles) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }

// ReadRegular opens without waiting, and looks at what it opened: something
// else may have taken the place of the file that was regular a moment ago.
func (osFiles) ReadRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	return io.ReadAll(io.LimitReader(f, manifest.MaxFileSize+1))
}
