package imagedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
)

// stateVersion is the version of the state file.
const stateVersion = 1

// stateFile is what was imported, on disk.
type stateFile struct {
	Version  int               `json:"version"`
	Archives map[string]record `json:"archives"` // by file
}

// restore brings back what was imported when the agent last ran. A file that
// says nothing costs a second import.
func (d *Dir) restore() error {
	data, err := os.ReadFile(d.cfg.StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var s stateFile
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	switch {
	case err != nil:
		d.log.Warn("restore which image archives were imported; they are imported again", "err", err)
		return nil
	case s.Version > stateVersion:
		return fmt.Errorf("%s has version %d, and this release reads %d: start the release that wrote it, or delete the file", d.cfg.StateFile, s.Version, stateVersion)
	}
	maps.Copy(d.records, s.Archives)
	d.saved = string(data)
	return nil
}

// save writes what was imported, if that changed. A failure is logged; the next
// change tries again.
func (d *Dir) save() {
	data, err := json.Marshal(stateFile{stateVersion, d.records})
	if err == nil && string(data) == d.saved {
		return
	}
	if err == nil {
		err = atomicfile.Write(d.cfg.StateFile, data, 0o600)
	}
	if err != nil {
		d.log.Error("save which image archives were imported", "err", err)
		return
	}
	d.saved = string(data)
}
