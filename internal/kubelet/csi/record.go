package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/regularfile"
)

// A record says whose a volume is: what is needed to unpublish and unstage it
// when nothing else is known. The names are upstream's. No secret is in it.
type record struct {
	Spec       string `json:"specVolID,omitempty"` // the pod's name for the volume, or that of its PersistentVolume
	Handle     string `json:"volumeHandle"`
	Driver     string `json:"driverName"`
	Node       string `json:"nodeName,omitempty"`
	Attachment string `json:"attachmentID,omitempty"`
	Mode       string `json:"volumeLifecycleMode,omitempty"`
}

// maxRecord is far more bytes than a driver's names can have.
const maxRecord = 64 << 10

func (r *record) volume() volume { return volume{r.Driver, r.Handle} }

func (r *record) ephemeral() bool { return r.Mode == string(storagev1.VolumeLifecycleEphemeral) }

// readRecord reads the record in a folder. The error matches fs.ErrNotExist if
// there is none.
func readRecord(dir string) (*record, error) {
	data, _, err := regularfile.ReadAll(filepath.Join(dir, recordName), maxRecord)
	if err != nil {
		return nil, fmt.Errorf("read whose volume it is: %w", err)
	}
	r, err := parseRecord(data)
	if err != nil {
		return nil, fmt.Errorf("read whose volume it is: %s: %w", filepath.Join(dir, recordName), err)
	}
	return r, nil
}

// parseRecord reads upstream's records and ours.
func parseRecord(data []byte) (*record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	switch {
	case r.Handle == "":
		return nil, errors.New("it names no volume")
	case !isName(r.Driver):
		return nil, fmt.Errorf("%q is no name of a driver", r.Driver)
	}
	return &r, nil
}

// isName reports whether a driver's name can be that of a folder.
func isName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 63 && !strings.ContainsAny(name, "/\x00")
}

func (r *record) write(dir string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode whose volume it is: %w", err)
	}
	have, err := readRecord(dir)
	if err == nil && *have == *r {
		return nil
	}
	if err := atomicfile.Write(filepath.Join(dir, recordName), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("note whose volume it is: %w", err)
	}
	return nil
}

func notThere(err error) bool { return errors.Is(err, fs.ErrNotExist) }
