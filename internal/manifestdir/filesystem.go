package manifestdir

import (
	"io"
	"io/fs"
	"os"

	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/regularfile"
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

func (osFiles) ReadRegular(path string) ([]byte, error) {
	f, _, err := regularfile.Open(path, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, manifest.MaxFileSize+1))
}
