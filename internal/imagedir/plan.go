package imagedir

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

// A look is what tells one content of a file from another, without reading it.
type look struct {
	Size    int64     `json:"size"` // bytes
	ModTime time.Time `json:"modTime"`
}

func (l look) same(o look) bool { return l.Size == o.Size && l.ModTime.Equal(o.ModTime) }

// A sight is a file as it is in the folder now.
type sight struct {
	look
	since time.Time // when it was first seen like this
	bad   bool      // it can never be imported
	// What came of the last try to import this very content.
	failures int       // tries in a row
	again    time.Time // when to try again; zero: not before the file changes
}

// A record is an archive that was imported, and whose images are pinned.
type record struct {
	look
	Images []image   `json:"images"`
	gone   time.Time // when the file was first missed; zero: it is there
}

// An image is one that an archive gave.
type image struct {
	Ref string `json:"ref"`
	ID  string `json:"id"`
}

// A step is one thing to do.
type step struct {
	file string
	verb verb
}

type verb string

const (
	load   verb = "load"   // import the file
	forget verb = "forget" // the file is gone: its images may be collected
	check  verb = "check"  // see that its images are there and pinned
)

// plan decides what to do next. The rules:
//
//   - A file that was imported, and is as it was then, is only checked, once in
//     each checking period.
//   - Any other is imported once it has settled: it was last changed, or first
//     seen like this, a while ago.
//   - What could not be imported is tried again when it changes, or when its
//     failure says so.
//   - A file that is gone is forgotten when it stays away for the settle time.
//
// It returns the steps by file, forgetting first so that a name is free for
// who else has it, and when to plan again though nothing happens; zero is never.
func plan(now time.Time, files map[string]sight, records map[string]record, checked time.Time) (steps []step, next time.Time) {
	due := func(file string, verb verb, at time.Time) {
		if at.After(now) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			return
		}
		steps = append(steps, step{file, verb})
	}
	for _, file := range slices.Sorted(maps.Keys(records)) {
		if gone := records[file].gone; !gone.IsZero() {
			due(file, forget, gone.Add(settle))
		}
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		s := files[file]
		r, known := records[file]
		switch {
		case s.bad:
		case known && r.same(s.look):
			due(file, check, checked.Add(checkPeriod))
		case s.failures == 0:
			due(file, load, settled(s, now).Add(settle))
		case !s.again.IsZero():
			due(file, load, s.again)
		}
	}
	return steps, next
}

// settled returns since when a file is as it is: its time of change, unless that
// lies ahead, or the moment it was first seen if that was earlier. A file that
// was moved here is settled at once.
func settled(s sight, now time.Time) time.Time {
	if s.ModTime.After(now) || s.since.Before(s.ModTime) {
		return s.since
	}
	return s.ModTime
}

// owner returns another file that gave one of the names another image, and the
// name; nothing if there is none. Who was first keeps a name.
func owner(records map[string]record, file string, images []ociimage.Named) (other, ref string) {
	for _, other := range slices.Sorted(maps.Keys(records)) {
		if other == file || !records[other].gone.IsZero() {
			continue
		}
		for _, theirs := range records[other].Images {
			for _, img := range images {
				if theirs.Ref == img.Ref && !slices.Contains(img.IDs, theirs.ID) {
					return other, img.Ref
				}
			}
		}
	}
	return "", ""
}

// unclaimed returns the names of before that no record has any more.
func unclaimed(before []image, records map[string]record) []string {
	held := map[string]bool{}
	for _, r := range records {
		for _, img := range r.Images {
			held[img.Ref] = true
		}
	}
	var free []string
	for _, img := range before {
		if !held[img.Ref] {
			free = append(free, img.Ref)
		}
	}
	return free
}
