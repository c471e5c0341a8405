// Package desired holds the pods that this node should run: what all sources
// deliver merged, and what changed as ordered updates. It is upstream's pod
// configuration, with its older modes besides the incremental one.
//
// Everything is a computation on memory: no clock, no I/O, no goroutine. A
// [Pods] has one owner and is not safe for concurrent use. A pod that it took or
// gave is never changed afterwards, by either side: a change is another object.
//
// A delta costs what changed. A full set costs a glance at each pod, and the
// comparison of those that are other objects than last time.
//
// Names are kept apart by rule. Of two pods of one name in one source the first
// of its set is in force. Of two static pods of one name in two sources the one
// that is in force stays, and the other takes its place once it is gone. A pod
// of the API is in force beside a static one: the server keeps its names unique,
// so that only the mirror of the static pod suffers.
package desired

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// Pods are the pods of all sources.
type Pods struct {
	mode    Mode
	sources map[string]*source
	ordered []*source // by name

	holders map[types.NamespacedName]*source // the source whose static pod of a name is in force
	freed   []types.NamespacedName           // names that lost their holder in this delivery
	heirs   map[types.NamespacedName]*source // static sources that have not answered yet, and whose pod of a name runs
	clashes map[types.NamespacedName]bool    // names in force both in the API and in a static source
	touched []*entry                         // of this delivery; kept for its memory
}

// New returns the empty state of these sources, in the mode [Incremental].
func New(sources ...string) *Pods {
	p := &Pods{
		sources: map[string]*source{},
		holders: map[types.NamespacedName]*source{},
		clashes: map[types.NamespacedName]bool{},
		heirs:   map[types.NamespacedName]*source{},
	}
	for _, name := range sources {
		p.sources[name] = newSource(name)
	}
	p.ordered = sourcesOf(p.sources)
	return p
}

// NewInMode returns the empty state of these sources, which tells changes as the
// mode says. A mode that does not exist is an error.
func NewInMode(mode Mode, sources ...string) (*Pods, error) {
	if !mode.valid() {
		return nil, fmt.Errorf("notification mode %d is not known", mode)
	}
	p := New(sources...)
	p.mode = mode
	return p, nil
}

// SeenAllSources reports whether every source has delivered a set and its
// updates have been taken: seen holds the sources of the updates that were.
func (p *Pods) SeenAllSources(seen sets.Set[string]) bool {
	for _, s := range p.ordered {
		if !s.seen || !seen.Has(s.name) {
			return false
		}
	}
	return true
}

// All returns every pod that is wanted, ordered by namespace and name.
func (p *Pods) All() []*corev1.Pod {
	var all []*corev1.Pod
	for _, s := range p.ordered {
		for _, e := range s.entries {
			if e.stored != nil {
				all = append(all, e.stored)
			}
		}
	}
	slices.SortFunc(all, byName)
	return all
}

// Snapshot returns every pod that is wanted as one update, whose source is "*".
func (p *Pods) Snapshot() Update {
	return Update{OpSet, staticpod.SourceAll, p.All()}
}

// Merge takes what a source delivers and returns what changed. A source that
// was not given to New is added. now becomes the annotation config.seen of new
// pods.
//
// Updates of other sources follow where their pods had given way to one that
// is gone.
func (p *Pods) Merge(d Delivery, now time.Time) []Update {
	s := p.source(d.Source)
	c := &changes{source: s, added: OpAdd}
	s.round++
	switch d.Kind {
	case Full:
		p.takeFull(s, d, c)
		c.first, s.seen = !s.seen, true
	case Delta:
		p.takeDelta(s, d, c)
	case Restored:
		if s.seen {
			return nil // what the source says itself is newer
		}
		c.added = OpRestore
		p.takeRestored(s, d)
	}
	p.settle(c, now)
	if c.first {
		p.disinherit(s)
	}
	return p.updates(append([]*changes{c}, p.fill(now)...))
}

func (p *Pods) source(name string) *source {
	s, ok := p.sources[name]
	if !ok {
		s = newSource(name)
		p.sources[name] = s
		p.ordered = sourcesOf(p.sources)
	}
	return s
}
