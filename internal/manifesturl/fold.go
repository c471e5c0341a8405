package manifesturl

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// An answer is what one whole answer of the server says.
type answer struct {
	documents []manifest.Document
	faults    []manifest.Fault
	// doubtful: it may be a part of what was meant, and so takes nothing away.
	doubtful bool
	signed   *signed // nil: no signature was wanted
}

// signed is an answer as it was signed, to be verified again after a restart.
type signed struct {
	Body      []byte `json:"body"`
	Signature []byte `json:"signature"`
}

// state is what is remembered from one request to the next.
type state struct {
	inForce  map[manifest.Key]entry
	faults   []manifest.Fault // of the last answer's documents
	outage   *manifest.Fault  // the last request brought no answer
	doubtful bool             // so was the last answer
	known    bool             // there was an answer, in this run or an earlier one
	set      Set              // what all of it comes to
}

// An entry is a document in force.
type entry struct {
	document manifest.Document
	kept     bool    // the last answer has it, but not good, or may have lost it
	signed   *signed // the answer that it is from
}

// fold decides what is in force after an answer. The rules:
//
//   - A document with a fault costs only itself, and its last good version stays.
//   - What a whole answer does not name goes at once: somebody took it out.
//   - What a doubtful answer does not name stays; see [doubtful].
//   - Of documents with one key the one that is in force counts, else the first.
func fold(prev state, a answer, now time.Time) state {
	next := state{inForce: map[manifest.Key]entry{}, faults: slices.Clone(a.faults), doubtful: a.doubtful}
	next.known = prev.known || len(a.documents) > 0 || !a.doubtful
	for _, d := range a.documents {
		first, again := next.inForce[d.Key]
		switch {
		case !again:
			next.inForce[d.Key] = entry{document: d, signed: a.signed}
		case same(d, prev.inForce[d.Key].document) && !same(first.document, prev.inForce[d.Key].document):
			next.inForce[d.Key] = entry{document: d, signed: a.signed}
			next.faults = append(next.faults, duplicate(first.document, d))
		default:
			next.faults = append(next.faults, duplicate(d, first.document))
		}
	}
	faulty := map[manifest.Key]bool{}
	for _, f := range a.faults {
		faulty[keyOf(f)] = true
	}
	for key, e := range prev.inForce {
		if _, there := next.inForce[key]; !there && (a.doubtful || faulty[key]) {
			e.kept = true
			next.inForce[key] = e
		}
	}
	return next.finish(prev, now)
}

func same(a, b manifest.Document) bool { return bytes.Equal(a.Written, b.Written) }

func duplicate(d, winner manifest.Document) manifest.Fault {
	return d.Fault(manifest.ReasonDuplicate, "metadata.name",
		fmt.Sprintf("duplicate %s name: line %d has it too, and that one is in force", d.Key.Kind, winner.Line),
		"rename or delete one of the two")
}

// keyOf returns the key of the pod that a fault is about.
func keyOf(f manifest.Fault) manifest.Key {
	return manifest.Key{Kind: f.Kind, Namespace: cmp.Or(f.Namespace, manifest.DefaultNamespace), Name: f.Name}
}

// unanswered keeps everything and says why.
func (s state) unanswered(f manifest.Fault, now time.Time) state {
	next := s
	next.outage = &f
	return next.finish(s, now)
}

// unchanged is the state after the server said the same again.
func (s state) unchanged(now time.Time) state {
	next := s
	next.outage = nil
	return next.finish(s, now)
}

// finish works out the set.
func (s state) finish(prev state, now time.Time) state {
	faults := slices.Clone(s.faults)
	if s.outage != nil {
		faults = append(faults, *s.outage)
	}
	s.set = Set{Known: s.known, Faults: sinceWhen(faults, prev.set.Faults, now)}
	for key, e := range s.inForce {
		s.set.Documents = append(s.set.Documents, e.document)
		if e.kept || s.outage != nil {
			s.set.Kept = append(s.set.Kept, key)
		}
	}
	slices.SortFunc(s.set.Documents, func(a, b manifest.Document) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	slices.SortFunc(s.set.Kept, func(a, b manifest.Key) int { return cmp.Compare(a.String(), b.String()) })
	return s
}

// failed says why there is no good answer now, and since when.
func (s state) failed() (why string, since time.Time) {
	for _, f := range s.set.Faults {
		if s.outage != nil && f.Same(*s.outage) {
			return f.Message, f.Since
		}
	}
	if s.doubtful && len(s.set.Faults) > 0 {
		return "the answer may be cut off, so nothing goes: " + s.set.Faults[0].String(), s.set.Faults[0].Since
	}
	return "", time.Time{}
}

// sinceWhen sorts faults and gives each the time at which it was first seen.
func sinceWhen(faults, before []manifest.Fault, now time.Time) []manifest.Fault {
	since := make(map[manifest.Fault]time.Time, len(before))
	for _, f := range before {
		since[f.Identity()] = f.Since
	}
	for i, f := range faults {
		faults[i].Since = now
		if t, ok := since[f.Identity()]; ok {
			faults[i].Since = t
		}
	}
	slices.SortStableFunc(faults, func(a, b manifest.Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	return faults
}
