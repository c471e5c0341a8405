package pluginregistry

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// identity tells a socket from another that takes its place: file numbers are
// given again at once, so the time of the last change belongs to it.
type identity struct {
	dev, inode uint64
	changed    syscall.Timespec
}

// scan returns the sockets in a folder and below it, and the folders. Names
// that begin with a dot are nobody's business, and links are not followed.
func scan(dir string) (sockets map[string]identity, folders []string, err error) {
	sockets = map[string]identity{}
	folders = []string{dir}
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		switch {
		case strings.HasPrefix(entry.Name(), "."):
		case entry.IsDir():
			below, more, wrong := scan(path)
			maps.Copy(sockets, below)
			folders = append(folders, more...)
			if !errors.Is(wrong, fs.ErrNotExist) { // else gone meanwhile
				err = errors.Join(err, wrong)
			}
		case entry.Type() == fs.ModeSocket:
			var stat syscall.Stat_t
			if syscall.Lstat(path, &stat) == nil { // else gone meanwhile
				sockets[path] = identity{stat.Dev, stat.Ino, stat.Ctim}
			}
		}
	}
	return sockets, folders, err
}
