// Package projectquota has a filesystem count, and bound, what single folders take,
// where it can: ext4 and xfs with project quota switched on.
//
// A folder gets a project of its own, which everything that is made in it inherits.
// From then on the filesystem knows how many bytes and inodes the project has, and a
// question for that takes microseconds whatever is in the folder. With a limit, a
// folder even looks like a filesystem of that size to statfs(2), and so to df in a pod.
//
// The kernel lets who owns a file give it to another project, unless it is in a user
// namespace. So the figure of a folder in which others have files is theirs to fake, and
// a limit shows them, by statfs(2), which numbers are in use: give one only where the
// files' owners cannot.
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
// project, or only a part in one.
var ErrNone = errors.New("no project quota")

// ErrNotEmpty is returned by Assign for a folder that has something in it already:
// that would not be counted.
var ErrNotEmpty = errors.New("the folder is not empty")

// ErrForeign is returned by Assign for a folder that has a project that is not ours:
// what is made in it counts there, and should go on to.
var ErrForeign = errors.New("the folder is in a project of somebody else's")

// A Usage is what the filesystem says of a folder's project.
type Usage struct {
	Project uint32
	Bytes   uint64 // of blocks, those of files that are deleted and still open among them
	Inodes  uint64
	Limit   uint64 // of Bytes, as statfs says; 0: none
}

// A Limit bounds what a folder can take. The zero value is none.
type Limit struct {
	Bytes uint64 // what statfs(2) says is the folder's size; rounded up to KiB
	// Slack is how many bytes more can be taken than that before there is no space
	// left. What goes beyond Bytes has the filesystem's grace for it, mostly a week.
	Slack uint64
}

// Ours reports whether a project is one that Assign gave.
func Ours(project uint32) bool { return project >= First && project < End }

// Read returns what a folder takes. The error is ErrNone if its filesystem cannot
// tell, or the folder above it has the same project, and fs.ErrNotExist if there is
// none. The project may be anybody's, and then be that of other folders, too: see Ours.
func Read(dir string) (Usage, error) {
	f, err := open(dir)
	if err != nil {
		return Usage{}, wrap("read", dir, err)
	}
	defer f.close()
	used, err := f.read()
	return used, wrap("read", dir, err)
}

// Assign gives an empty folder a project of its own with a limit. One that has a
// project of ours already keeps it, and gets the limit. Where the filesystem has no
// project quota the error is ErrNone. With any error nothing is changed.
func Assign(dir string, limit Limit) (Usage, error) {
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
	above, err := f.above()
	if err != nil {
		return Usage{}, err
	}
	defer above.close()
	if shared, _, err := above.project(); err == nil && shared == project {
		return Usage{}, ErrNone
	}
	return f.usage(project)
}

// attempts is how many numbers are tried. Of a billion, one that is taken is hardly
// ever met twice.
const attempts = 16

func (f folder) assign(limit Limit) (Usage, error) {
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
	if have != 0 && !Ours(have) {
		return Usage{}, ErrForeign
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
		if err == nil && limit.Bytes > 0 {
			if err = f.limit(project, limit); err == nil {
				used, err = f.usage(project)
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
	return errors.Join(f.limit(project, Limit{}), f.setProject(0, flags&^inherit))
}
