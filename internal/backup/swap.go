package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
)

// stageName is the folder of a restore under way, in the root folder.
const stageName = ".restore"

// A plan is .restore/plan.json. Once it is there the restore goes on to its
// end, by whoever comes next; without it the folder is rubbish.
type plan struct {
	Version int      `json:"version"`
	Paths   []string `json:"paths"` // below the root folder, to be replaced in this order
	Aside   string   `json:"aside"` // below the root folder: where what they replace goes
}

// A Stage is where a restore puts files together.
type Stage struct {
	root string
}

// NewStage returns an empty stage in the folder root. What an earlier restore
// that was not finished left is removed.
func NewStage(root string) (*Stage, error) {
	s := &Stage{root}
	if err := os.RemoveAll(s.folder()); err != nil {
		return nil, fmt.Errorf("remove an earlier restore: %w", err)
	}
	if err := os.MkdirAll(s.Path(), 0o700); err != nil {
		return nil, fmt.Errorf("make a folder to restore into: %w", err)
	}
	return s, nil
}

func (s *Stage) folder() string { return filepath.Join(s.root, stageName) }

// Path returns a path on the stage.
func (s *Stage) Path(elem ...string) string {
	return filepath.Join(append([]string{s.folder(), "new"}, elem...)...)
}

// Discard removes the stage. Nothing outside it was touched.
func (s *Stage) Discard() error { return os.RemoveAll(s.folder()) }

// Commit replaces paths, below the root folder, by what is on the stage under
// the same names, and moves what they replace to the folder aside, below the
// root folder too. From the moment that the plan is written the restore is
// done, even if Finish must be called again after a crash.
func (s *Stage) Commit(paths []string, now time.Time) (aside string, err error) {
	p := plan{Version: FormatVersion, Paths: paths, Aside: asideName(now)}
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return "", err
	}
	if err := syncTree(s.Path()); err != nil {
		return "", fmt.Errorf("write the restored files: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(s.folder(), "plan.json"), append(data, '\n'), 0o600); err != nil {
		return "", err
	}
	return filepath.Join(s.root, p.Aside), Finish(s.root)
}

func asideName(now time.Time) string { return "replaced-" + now.UTC().Format("20060102T150405Z") }

// Finish ends a restore of the folder root that was committed, and does
// nothing where there is none.
func Finish(root string) error {
	s := &Stage{root}
	data, err := os.ReadFile(filepath.Join(s.folder(), "plan.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finish the restore: %w", err)
	}
	var p plan
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("finish the restore: %s is damaged: %w (remove the folder and restore again)", filepath.Join(s.folder(), "plan.json"), err)
	}
	if p.Version > FormatVersion {
		return fmt.Errorf("finish the restore: %w", ErrNewer)
	}
	for _, path := range p.Paths {
		if err := swap(s.Path(path), filepath.Join(root, path), filepath.Join(root, p.Aside, path)); err != nil {
			return fmt.Errorf("finish the restore: %w", err)
		}
	}
	return errors.Join(syncFolder(root), s.Discard())
}

// swap moves target aside and staged in its place. Called again after a crash
// it does what is left to do.
func swap(staged, target, aside string) error {
	if _, err := os.Lstat(staged); errors.Is(err, fs.ErrNotExist) {
		return nil // moved already
	} else if err != nil {
		return err
	}
	if err := moveAside(target, aside); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o711); err != nil {
		return err
	}
	return os.Rename(staged, target)
}

// moveAside moves path, if it is there, to aside.
func moveAside(path, aside string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(aside), 0o700); err != nil {
		return err
	}
	return os.Rename(path, aside)
}

// Aside moves path, below the folder root, out of the way, and returns where
// it is then.
func Aside(root, path string, now time.Time) (string, error) {
	aside := filepath.Join(root, asideName(now), path)
	if err := moveAside(filepath.Join(root, path), aside); err != nil {
		return "", err
	}
	return aside, syncFolder(root)
}

// syncTree makes everything in dir durable.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncFolder(path) // a file is synced in the same way
	})
}
