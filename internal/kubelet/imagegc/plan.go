package imagegc

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A history is what is remembered of an image from one look to the next.
type history struct {
	detected time.Time // when it was first seen; zero: before the first look
	lastUsed time.Time // when it was last seen in use; zero: never
}

// A candidate is an image that nothing keeps.
type candidate struct {
	history
	id   string
	size int64
}

// A view is what one look at the machine saw.
type view struct {
	images []*runtimeapi.Image
	kept   sets.Set[string] // IDs and names of images that are in use or wanted
	at     time.Time
}

// survey brings the records up to date and returns those images that may go,
// the longest unused first, as upstream orders them. Records of images that are
// gone are dropped. first is the first look ever: what it finds is older than
// anybody knows.
func survey(old map[string]history, v view, first bool) (records map[string]history, candidates []candidate) {
	records = make(map[string]history, len(v.images))
	for _, image := range v.images {
		r, known := old[image.GetId()]
		if !known && !first {
			r.detected = v.at
		}
		kept := v.keeps(image)
		if kept {
			r.lastUsed = v.at
		}
		records[image.GetId()] = r
		if !kept && !image.GetPinned() {
			candidates = append(candidates, candidate{history: r, id: image.GetId(), size: int64(image.GetSize())}) //nolint:gosec // no image has 8 EiB
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(a.lastUsed.Compare(b.lastUsed), a.detected.Compare(b.detected), cmp.Compare(a.id, b.id))
	})
	return records, candidates
}

func (v view) keeps(image *runtimeapi.Image) bool {
	return v.kept.Has(image.GetId()) || v.kept.HasAny(image.GetRepoTags()...) || v.kept.HasAny(image.GetRepoDigests()...)
}

// tooOld parts the candidates that were unused for longer than maxAge from the
// rest. An image's time counts from its last use, or else from when it was
// first seen, or else from when we began to look. (Upstream takes an image that
// was never used for infinitely old, even one that came a moment ago.)
func tooOld(candidates []candidate, maxAge time.Duration, now, began time.Time) (old, rest []candidate) {
	if maxAge == 0 {
		return nil, candidates
	}
	for _, c := range candidates {
		since := began
		for _, t := range []time.Time{c.detected, c.lastUsed} {
			if t.After(since) {
				since = t
			}
		}
		if now.Sub(since) > maxAge {
			old = append(old, c)
		} else {
			rest = append(rest, c)
		}
	}
	return old, rest
}

// removable returns the candidates that may go to make room: those that were
// not just pulled.
func removable(candidates []candidate, minAge time.Duration, now time.Time) []candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return now.Sub(c.detected) < minAge })
}
