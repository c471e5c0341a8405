// Package projectquota has a filesystem count, and bound, what single folders take,
// where it can: ext4 and xfs with project quota switched on.
//
// A folder gets a project of its own, which everything that is made in it inherits.
// From then on the filesystem knows how many bytes and inodes the project has, and a
// question for that takes microseconds whatever is in the folder. With a limit, a
// folder even looks like a filesystem of that size to statfs(2), and so to df in a pod.
//
// Which project a folder has stands in the folder itself and nowhere else: there is
// no file of ours to lose or to disagree with, and /etc/projects is not touched.
// Projects of ours are numbered from First up, so that an administrator's are never
// taken for one.
//
// Functions may be called by any goroutine. They need root.
package projectquota

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
)

// The projects that are ours: First and up, below End. Tools and people count from 1.
const (
	First = 1 << 30
	End   = 1 << 31
)

// ErrNone is returned where the filesystem has no project quota, or the folder no
// project.
var ErrNone = errors.New("no project quota")

// ErrNotEmpty is returned by Assign for a folder that has something in it already:
// that would not be counted.
var ErrNotEmpty = errors.New("the folder is not empty")

// A Usage is what the filesystem says of a folder's project.
type Usage struct {
	Project uint32
	Bytes   uint64 // of blocks, those of files that are deleted and still open among them
	Inodes  uint64
	Limit   uint64 // of Bytes; 0: none
}

// Ours reports whether a project is one that Assign gave.
func Ours(project uint32) bool { return project >= First && project < End }

// Read returns what a folder takes. The error is ErrNone if its filesystem cannot
// tell, and fs.ErrNotExist if there is no folder. The project may be anybody's, and
// then be that of other folders, too: see Ours.
func Read(dir string) (Usage, error) {
	f, err := open(dir)
	if err != nil {
		return Usage{}, wrap("read", dir, err)
	}
	defer f.close()
	used, err := f.read()
	return used, wrap("read", dir, err)
}

// Assign gives an empty folder a project of its own with a limit in bytes, 0 for
// none. One that has a project of ours already keeps it, and gets the limit. Where
// the filesystem has no project quota the error is ErrNone and nothing is changed.
func Assign(dir string, limit uint64) (Usage, error) {
	f, err := open(dir)
	if err != nil {
		return Usage{}, wrap("assign", dir, err)
	}
	defer f.close()
	used, err := f.assign(limit)
	return used, wrap("assign", dir, err)
}

// Free takes a folder's project from it, if it is ours, with its limit, so that the
// number can be used again. What is in the folder should be removed next: it keeps
// counting for that number. It is nil if there is nothing to free.
func Free(dir string) error {
	f, err := open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return wrap("free", dir, err)
	}
	defer f.close()
	err = f.free()
	if errors.Is(err, ErrNone) {
		return nil
	}
	return wrap("free", dir, err)
}

func wrap(op, dir string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s project quota of %s: %w", op, dir, err)
}

func (f folder) read() (Usage, error) {
	project, _, err := f.project()
	if err != nil {
		return Usage{}, err
	}
	if project == 0 {
		return Usage{}, ErrNone
	}
	return f.usage(project)
}

// attempts is how many numbers are tried. Of a billion, one that is taken is hardly
// ever met twice.
const attempts = 16

func (f folder) assign(limit uint64) (Usage, error) {
	have, flags, err := f.project()
	if err != nil {
		return Usage{}, err
	}
	if Ours(have) && flags&inherit != 0 {
		if err := f.limit(have, limit); err != nil {
			return Usage{}, err
		}
		return f.usage(have)
	}
	if _, err := f.usage(First); err != nil { // before anything is changed
		return Usage{}, err
	}
	if empty, err := f.isEmpty(); err != nil {
		return Usage{}, err
	} else if !empty {
		return Usage{}, ErrNotEmpty
	}
	for range attempts {
		project := First + rand.Uint32N(End-First)
		before, err := f.usage(project)
		if err != nil {
			return Usage{}, err
		}
		if before.Inodes > 0 || before.Bytes > 0 || before.Limit > 0 {
			continue // somebody's
		}
		if err := f.setProject(project, flags|inherit); err != nil {
			return Usage{}, err
		}
		used, err := f.usage(project)
		if err == nil && used.Inodes > 1 {
			continue // another took the same number at the same time, and sees that, too
		}
		if err == nil && limit > 0 {
			if err = f.limit(project, limit); err == nil {
				used.Limit = limit
			}
		}
		if err != nil {
			return Usage{}, errors.Join(err, f.setProject(have, flags))
		}
		return used, nil
	}
	return Usage{}, errors.Join(errors.New("no free number was found"), f.setProject(have, flags))
}

func (f folder) free() error {
	project, flags, err := f.project()
	if err != nil {
		return err
	}
	if !Ours(project) {
		return nil
	}
	return errors.Join(f.limit(project, 0), f.setProject(0, flags&^inherit))
}
