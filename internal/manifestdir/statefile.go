package manifestdir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// stateVersion is the version of the state file.
const stateVersion = 1

// stateFile is what is in force, on disk.
type stateFile struct {
	Version   int             `json:"version"`
	Documents []savedDocument `json:"documents"`
}

type savedDocument struct {
	File    string          `json:"file"`
	Line    int             `json:"line"`
	Written json.RawMessage `json:"written"`
}

// restore brings back what was in force when the agent last ran. What cannot be
// brought back is logged: files that are good will say it again. The error is
// errNewer, if any: what a newer release kept is not written over.
func (d *Dir) restore() error {
	if d.cfg.StateFile == "" {
		return nil
	}
	docs, err := load(d.cfg.StateFile, d.cfg.Parser)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errNewer):
		return err
	default:
		d.log.Warn("restore the last good manifests", "err", err)
	}
	if docs == nil {
		return nil
	}
	d.state.inForce = map[manifest.Key]entry{}
	for _, doc := range docs {
		d.state.inForce[doc.Key] = entry{document: doc}
	}
	d.state.set = d.state.makeSet(nil)
	d.state.set.Known = true
	d.saved = d.state.set.Documents
	return nil
}

// errNewer is returned for a state file that this release cannot read.
var errNewer = errors.New("start the release that wrote it, or delete the file if every manifest is good")

// Saved returns the documents that a state file remembers: what was in force
// when an agent last wrote it. With an error it returns what could be read; nil
// if that is nothing, as it is where no agent has ever read the folder.
func Saved(path string, parser *manifest.Parser) ([]manifest.Document, error) {
	docs, err := load(path, parser)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return docs, err
}

// load reads a state file. With an error it returns what could be read, and nil
// if that is nothing.
func load(path string, parser *manifest.Parser) ([]manifest.Document, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var head struct { // of every version, whatever else it holds
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if head.Version < stateVersion {
		return nil, fmt.Errorf("%s has no version that this release reads: %d", path, head.Version)
	}
	if head.Version > stateVersion {
		return nil, fmt.Errorf("%s has version %d, and this release reads %d: %w", path, head.Version, stateVersion, errNewer)
	}
	var s stateFile
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	docs := []manifest.Document{}
	var errs []error
	for _, sd := range s.Documents {
		doc, err := parser.Restore(sd.File, sd.Line, sd.Written)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		docs = append(docs, doc)
	}
	return docs, errors.Join(errs...)
}

// save writes what is in force, if that changed. A failure is logged and tried
// again at the next reading.
func (d *Dir) save() {
	docs := d.state.set.Documents
	if d.cfg.StateFile == "" || !d.state.set.Known || d.saved != nil && slices.EqualFunc(d.saved, docs, manifest.Document.Equal) {
		return
	}
	s := stateFile{Version: stateVersion, Documents: []savedDocument{}}
	for _, doc := range docs {
		s.Documents = append(s.Documents, savedDocument{doc.File, doc.Line, doc.Written})
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = atomicfile.Write(d.cfg.StateFile, data, 0o600)
	}
	if err != nil {
		d.log.Error("save the last good manifests", "err", err)
		return
	}
	d.saved = slices.Clone(docs)
	if d.saved == nil {
		d.saved = []manifest.Document{}
	}
}
