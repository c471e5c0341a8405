package manifestdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// ReadConfig says what to read once.
type ReadConfig struct {
	// Dir is a folder, whose files are named from there as by a watched one.
	// Empty: there is none, and Paths count.
	Dir string
	// Paths are folders and files, whose names begin with the path as given.
	Paths []string
	// Stdin, if it is not nil, is read as a file named "-".
	Stdin []byte
	// Recursive, Parser and Check are those of [Config].
	Recursive bool
	Parser    *manifest.Parser
	Check     func(d manifest.Document) []manifest.Fault
	// InForce are the documents that are in force before. Nil: none.
	InForce []manifest.Document
}

// Read reads files and folders once and returns what is in force once that has
// settled, as a [Dir] would publish it that had InForce in force before, and how
// many manifests there are. What names a Path is read whatever it is called, but
// one that a folder would not take is a fault.
//
// The error is of a folder or path that is not there.
func Read(cfg ReadConfig) (set Set, manifests int, err error) {
	r, err := cfg.read()
	if err != nil {
		return Set{}, 0, err
	}
	before := state{inForce: map[manifest.Key]entry{}}
	for _, d := range cfg.InForce {
		before.inForce[d.Key] = entry{document: d}
	}
	after, _ := fold(before, r, time.Now(), 0)
	for i := range after.set.Faults {
		after.set.Faults[i].Since = time.Time{} // of this moment, which says nothing
	}
	return after.set, len(r.files), nil
}

func (c ReadConfig) read() (reading, error) {
	// Nobody is waited for: a settle time of none.
	s := newScanner(Config{Dir: c.Dir, Recursive: c.Recursive, Parser: c.Parser, Check: c.Check})
	if c.Dir != "" {
		r := s.scan()
		if r.failed != nil {
			return r, fmt.Errorf("%s: %s", c.Dir, r.failed.Message)
		}
		return r, nil
	}
	r := newReading()
	w := walk{scanner: &s, reading: &r, above: map[fingerprint]bool{}}
	for _, path := range c.Paths {
		if path == "" { // a variable that is not set, and no name for this folder
			return r, errors.New("a path is empty: name a file or a folder")
		}
		if err := w.given(filepath.Clean(path)); err != nil {
			return r, err
		}
	}
	slices.Sort(r.ignored) // a folder may be named twice
	r.ignored = slices.Compact(r.ignored)
	if c.Stdin != nil {
		r.files["-"] = s.parse("-", c.Stdin)
	}
	return r, nil
}

// given reads what somebody named.
func (w *walk) given(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return w.folder(path, 0)
	case !manifest.IsManifest(filepath.Base(path)):
		w.files[path] = file{faults: []manifest.Fault{{
			File: path, Reason: manifest.ReasonRefused,
			Message: "a manifest folder ignores a file of this name", Hint: "let its name end in .yaml, .yml or .json, and not begin with a dot",
		}}}
	default:
		w.entry(path, fs.FileInfoToDirEntry(info), 0)
	}
	return nil
}
