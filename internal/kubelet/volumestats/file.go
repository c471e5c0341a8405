package volumestats

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/regularfile"
)

const (
	fileVersion = 1
	fileLimit   = 16 << 20 // bytes; a volume takes some 300
)

// record is the file. docs/formats.md describes it.
type record struct {
	Version int                                     `json:"version"`
	Pods    map[types.UID]map[string]recordedVolume `json:"pods"`
}

type recordedVolume struct {
	Measured time.Time `json:"measured"`
	podvolumes.Usage
}

// load takes the figures that were kept. A file that cannot be used is told and left
// alone until the next one takes its place: all of it is found again by measuring.
func (a *Analyzer) load() {
	if a.cfg.File == "" {
		return
	}
	data, _, err := regularfile.ReadAll(a.cfg.File, fileLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var r record
	if err == nil {
		r, err = parse(data)
	}
	if err != nil {
		a.cfg.Log.Warn("the last figures of volumes cannot be used, all are measured anew", "file", a.cfg.File, "err", err)
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, volumes := range r.Pods {
		known := map[string]*volume{}
		for name, v := range volumes {
			if v.Measured.After(now) || now.Sub(v.Measured) > keptPeriods*a.cfg.Period {
				continue // of another clock, or of no use any more
			}
			known[name] = &volume{usage: v.Usage, measured: v.Measured, due: nextAt(uid, now.Add(-a.cfg.Period/2), 0, a.cfg.Period)}
		}
		if len(known) > 0 {
			a.mu.pods[uid] = known
		}
	}
}

func parse(data []byte) (record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, fmt.Errorf("it is damaged: %w", err)
	}
	if r.Version != fileVersion {
		return record{}, fmt.Errorf("it has format %d and this program reads %d", r.Version, fileVersion)
	}
	return r, nil
}

// save keeps the figures, if there are new ones.
func (a *Analyzer) save() {
	a.saved = time.Now()
	if a.cfg.File == "" || !a.changed {
		return
	}
	a.changed = false
	r := record{fileVersion, map[types.UID]map[string]recordedVolume{}}
	a.mu.Lock()
	for uid, volumes := range a.mu.pods {
		kept := map[string]recordedVolume{}
		for name, v := range volumes {
			if !v.measured.IsZero() {
				kept[name] = recordedVolume{v.measured.UTC().Round(time.Second), v.usage}
			}
		}
		if len(kept) > 0 {
			r.Pods[uid] = kept
		}
	}
	a.mu.Unlock()
	data, err := json.Marshal(r)
	if err == nil {
		err = atomicfile.Write(a.cfg.File, append(data, '\n'), 0o600)
	}
	if err != nil {
		a.cfg.Log.Warn("the figures of volumes are not kept over a restart", "file", a.cfg.File, "err", err)
	}
}
