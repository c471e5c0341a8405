package manifestdir

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// A reading is what one look at the folder found.
type reading struct {
	failed  *manifest.Fault // the folder could not be read: the rest says nothing
	files   map[string]file // by path from the folder
	lost    []string        // nested folders that could not be read
	ignored []string        // files that are no manifests

	again    time.Duration // after which a file that may be unfinished is due; 0: none is
	troubled bool          // something could not be read, though it is there

	watch   map[string]bool        // real folders whose events matter: all, or those of names in look
	look    map[string]fingerprint // names whose meaning matters, by lookAt
	folders map[string]fingerprint // folders that were read, links followed
}

func newReading() reading {
	return reading{files: map[string]file{}, watch: map[string]bool{}, look: map[string]fingerprint{}, folders: map[string]fingerprint{}}
}

// A file is what one file says.
type file struct {
	documents  []manifest.Document
	faults     []manifest.Fault
	unfinished bool // somebody may still be writing it: it says nothing yet
}

// state is what fold remembers from one reading to the next.
type state struct {
	inForce map[manifest.Key]entry
	faults  []manifest.Fault // of files, without the folder's own
	set     Set              // what inForce and faults come to
}

// An entry is a document in force.
type entry struct {
	document manifest.Document
	gone     time.Time // when it was first missed; zero if it is there
	kept     bool      // it was not found good, and stays
}

func (s state) equal(o state) bool {
	return s.set.Known == o.set.Known &&
		slices.EqualFunc(s.set.Documents, o.set.Documents, manifest.Document.Equal) &&
		slices.Equal(s.set.Faults, o.set.Faults) &&
		slices.Equal(s.set.Kept, o.set.Kept) &&
		slices.Equal(s.set.Ignored, o.set.Ignored)
}

// fold decides what is in force after a reading. The rules:
//
//   - A folder that cannot be read changes nothing.
//   - A file with a fault takes nothing away: its good documents count, and what
//     it said before stays where it says nothing now. So does what a file said
//     that somebody may still be writing.
//   - Of documents with one key, that from the file in force counts, else the
//     one that says the same, else the first by file and line; the others are
//     faults. So a copy never takes over,
//     and a document that moved to another file is no change but of its place.
//   - A document that is nowhere goes once it has been gone for the settle time.
//   - A document that is new to a file, while one of its kind is missing from
//     there, waits for what becomes of that: it may be a new name for the same
//     thing, and the two must not run side by side.
//
// It returns the next state and after how long a missing document is due; 0 if
// none is.
func fold(prev state, r reading, now time.Time, settle time.Duration) (state, time.Duration) {
	if r.failed != nil {
		return prev.unanswered(*r.failed, now), 0
	}
	next := state{inForce: map[manifest.Key]entry{}}
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		next.faults = append(next.faults, r.files[name].faults...)
	}
	next.keepBroken(prev, r)
	next.choose(prev, r)
	wait := next.miss(prev, now, settle)
	next.hold(prev)
	next.faults = sinceWhen(next.faults, prev.set.Faults, now)
	next.set = next.makeSet(next.faults)
	next.set.Known = true
	next.set.Ignored = r.ignored
	return next, wait
}

// unanswered keeps everything and says why. A document that was missing is
// given its whole time again: it may be back with the folder.
func (s state) unanswered(f manifest.Fault, now time.Time) state {
	next := state{inForce: map[manifest.Key]entry{}, faults: s.faults}
	for key, e := range s.inForce {
		next.inForce[key] = entry{document: e.document, kept: true}
	}
	faults := append([]manifest.Fault{f}, s.faults...)
	next.set = next.makeSet(sinceWhen(faults, s.set.Faults, now))
	next.set.Known = s.set.Known
	next.set.Ignored = s.set.Ignored
	return next
}

// broken reports whether the file is there and not wholly good.
func (r reading) broken(name string) bool {
	return len(r.files[name].faults) > 0 || r.files[name].unfinished ||
		slices.ContainsFunc(r.lost, func(dir string) bool { return strings.HasPrefix(name, dir+"/") })
}

// keepBroken keeps what broken files said and do not say now.
func (s *state) keepBroken(prev state, r reading) {
	for key, e := range prev.inForce {
		if r.broken(e.document.File) && !r.files[e.document.File].has(key) {
			s.inForce[key] = entry{document: e.document, kept: !r.files[e.document.File].unfinished}
		}
	}
}

func (f file) has(key manifest.Key) bool {
	return slices.ContainsFunc(f.documents, func(d manifest.Document) bool { return d.Key == key })
}

// choose puts one good document of each key in force.
func (s *state) choose(prev state, r reading) {
	found := map[manifest.Key][]manifest.Document{}
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		for _, d := range r.files[name].documents {
			found[d.Key] = append(found[d.Key], d)
		}
	}
	for key, docs := range found {
		winner, kept := s.inForce[key]
		if !kept {
			winner.document = prefer(docs, prev.inForce[key].document)
			s.inForce[key] = winner
		}
		for _, d := range docs {
			if d.File != winner.document.File || d.Line != winner.document.Line {
				s.faults = append(s.faults, duplicate(d, winner.document))
			}
		}
	}
}

// prefer returns the document that continues the one in force: from the same
// file rather than from another, unchanged rather than changed, else the first.
func prefer(docs []manifest.Document, inForce manifest.Document) manifest.Document {
	return slices.MinFunc(docs, func(a, b manifest.Document) int {
		return cmp.Compare(strangeness(a, inForce), strangeness(b, inForce))
	})
}

func strangeness(d, inForce manifest.Document) int {
	n := 0
	if d.File != inForce.File {
		n += 2
	}
	if !bytes.Equal(d.Written, inForce.Written) {
		n++
	}
	return n
}

func duplicate(d, winner manifest.Document) manifest.Fault {
	return d.Fault(manifest.ReasonDuplicate, "metadata.name",
		fmt.Sprintf("duplicate %s name: %s:%d has it too, and that one is in force", d.Key.Kind, winner.File, winner.Line),
		"rename or delete one of the two")
}

// miss keeps what is nowhere until it has been gone for the settle time.
func (s *state) miss(prev state, now time.Time, settle time.Duration) (wait time.Duration) {
	for key, e := range prev.inForce {
		if _, ok := s.inForce[key]; ok {
			continue
		}
		gone := e.gone
		if gone.IsZero() {
			gone = now
		}
		left := settle - now.Sub(gone)
		if left <= 0 {
			continue
		}
		s.inForce[key] = entry{document: e.document, gone: gone}
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}

// hold leaves out new documents that may be missing ones by another name. What
// is missing always is in force itself, so that the wait is known.
func (s *state) hold(prev state) {
	type origin struct{ file, kind string }
	missing := map[origin]bool{}
	for key, e := range s.inForce {
		if !e.gone.IsZero() {
			missing[origin{e.document.File, key.Kind}] = true
		}
	}
	maps.DeleteFunc(s.inForce, func(key manifest.Key, e entry) bool {
		_, known := prev.inForce[key]
		return !known && missing[origin{e.document.File, key.Kind}]
	})
}

// sinceWhen sorts faults and gives each the time at which it was first seen.
func sinceWhen(faults, before []manifest.Fault, now time.Time) []manifest.Fault {
	since := make(map[manifest.Fault]time.Time, len(before))
	for _, f := range before {
		since[f.Identity()] = f.Since
	}
	dated := slices.Clone(faults)
	for i, f := range dated {
		dated[i].Since = now
		if t, ok := since[f.Identity()]; ok {
			dated[i].Since = t
		}
	}
	slices.SortStableFunc(dated, func(a, b manifest.Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	return dated
}

func (s state) makeSet(faults []manifest.Fault) Set {
	set := Set{Faults: faults}
	for key, e := range s.inForce {
		set.Documents = append(set.Documents, e.document)
		if e.kept {
			set.Kept = append(set.Kept, key)
		}
	}
	slices.SortFunc(set.Documents, func(a, b manifest.Document) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	slices.SortFunc(set.Kept, func(a, b manifest.Key) int { return cmp.Compare(a.String(), b.String()) })
	return set
}
