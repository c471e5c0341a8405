// Package board keeps what the parts of a node say about themselves, for its
// report: how each part is, and what is wrong that a person can mend.
//
// Each part writes its own entry; anybody may read at any time.
package board

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/control"
)

// A Board holds parts and faults. The zero value is not usable; call New.
type Board struct {
	mu     sync.Mutex // guards the fields below
	parts  []control.Part
	faults map[string][]control.Fault // by who found them
}

// New returns a board of parts that wait to be started, in this order.
func New(parts ...string) *Board {
	b := &Board{faults: map[string][]control.Fault{}}
	for _, name := range parts {
		b.parts = append(b.parts, control.Part{Name: name, State: control.Waiting})
	}
	return b
}

// SetPart says how a part is. The time of the change is kept while state and
// message stay the same.
func (b *Board) SetPart(name string, state control.PartState, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.parts {
		p := &b.parts[i]
		if p.Name == name && (p.State != state || p.Message != message) {
			*p = control.Part{Name: name, State: state, Since: time.Now(), Message: message}
		}
	}
}

// SetFaults replaces everything that one finder found.
func (b *Board) SetFaults(finder string, faults []control.Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults[finder] = faults
}

// Parts returns every part, in the order in which they start.
func (b *Board) Parts() []control.Part {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.parts)
}

// Faults returns everything that is wrong, by file and line. It is never nil.
func (b *Board) Faults() []control.Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := []control.Fault{}
	for _, faults := range b.faults {
		all = append(all, faults...)
	}
	slices.SortFunc(all, func(x, y control.Fault) int {
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line), cmp.Compare(x.Object, y.Object), cmp.Compare(x.Message, y.Message))
	})
	return all
}
