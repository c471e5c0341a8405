package volumeplugin

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/diskusage"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/projectquota"
)

// sizeSlack is how many bytes more than its sizeLimit an emptyDir can take. Upstream
// evicts a pod that has more than its limit, and a pod that could not have more would
// never be: so there is room for one write beyond, of which xfs, the most generous,
// takes 4 MiB at once or nothing. df in the pod shows the sizeLimit.
const sizeSlack = 8 << 20

// assignProject has the filesystem count what is in an emptyDir on disk, where it can.
// Where it cannot, the files are counted one by one when somebody asks: nothing here
// keeps a pod from starting.
//
// Only a pod with users of its own gets a limit: others can give their files to any
// project, and would find by limits which numbers are whose, and fill those. Upstream
// gives the others no project at all; ours have one, whose figure is compared with a
// count now and then.
func (h *Host) assignProject(dir string, v *podvolumes.Volume) {
	var limit projectquota.Limit
	if v.OwnUsers && v.SizeLimit > 0 {
		limit = projectquota.Limit{Bytes: uint64(v.SizeLimit), Slack: sizeSlack} //nolint:gosec // it is positive
	}
	_, err := projectquota.Assign(dir, limit)
	if err != nil && !errors.Is(err, projectquota.ErrNone) {
		h.log.Warn("the filesystem does not count a volume, its files are counted one by one", "podUID", v.PodUID, "volume", v.Name, "err", err)
	}
}

// freeProject gives back the number of an emptyDir that is about to be removed.
func (h *Host) freeProject(dir string) {
	if err := projectquota.Free(dir); err != nil {
		h.log.Warn("the project of a volume is not given back", "path", dir, "err", err)
	}
}

// checkPeriod is the time from one comparison of a figure that a pod can fake to the next.
const checkPeriod = time.Hour

// checks remembers which figures of quota are believed.
type checks struct {
	mu   sync.Mutex // guards the field below
	last map[string]check
}

// check is the last comparison of a volume's figure.
type check struct {
	at    time.Time
	faked bool
}

// due reports whether the figure of the volume at path is to be compared now, and
// whether it was found to be faked. One that is new is compared a period from now: at
// the start there would be too much to count.
func (c *checks) due(path string, now time.Time) (due, faked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.last[path]
	if !ok {
		c.putLocked(path, check{at: now})
		return false, false
	}
	return now.Sub(last.at) >= checkPeriod, last.faked
}

// put notes a comparison.
func (c *checks) put(path string, last check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(path, last)
}

func (c *checks) putLocked(path string, last check) {
	if c.last == nil {
		c.last = map[string]check{}
	}
	for other, l := range c.last {
		if last.at.Sub(l.at) > 2*checkPeriod {
			delete(c.last, other) // that volume is gone
		}
	}
	c.last[path] = last
}

// quota returns what the filesystem says of the project of a volume; ok is false if it
// cannot tell, or what it tells is not to be believed.
func (h *Host) quota(ctx context.Context, path string) (used projectquota.Usage, ok bool) {
	used, err := projectquota.Read(path)
	if err != nil || !projectquota.Ours(used.Project) {
		return used, false
	}
	if used.Limit > 0 { // by assignProject: the pod cannot fake it
		return used, true
	}
	due, faked := h.checks.due(path, time.Now())
	if faked {
		h.checks.put(path, check{time.Now(), true})
		return used, false
	}
	if !due {
		return used, true
	}
	counted, err := diskusage.Measure(ctx, path, diskusage.Options{Background: true})
	if err != nil {
		return used, true // the next time
	}
	if used, err = projectquota.Read(path); err != nil { // what came during the count is in both
		return used, false
	}
	faked = isFaked(used, counted)
	if faked {
		h.log.Warn("files in a volume are taken out of its quota, they are counted one by one from now on",
			"path", path, "count", counted.Bytes, "said", used.Bytes)
	}
	h.checks.put(path, check{time.Now(), faked})
	return used, !faked
}

// isFaked reports whether more was counted than the filesystem says. It may say more
// than was counted: it knows of files that are deleted and still open.
func isFaked(said projectquota.Usage, counted diskusage.Usage) bool {
	const little = 1 << 20 // what may have gone since
	return counted.Bytes > said.Bytes+little && counted.Bytes-said.Bytes > said.Bytes/16
}
