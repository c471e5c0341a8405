// Package fault is how the parts of the kubelet tell what is wrong now, for
// people to see.
//
// Everything here is a value or a pure function; any goroutine may call it.
package fault

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A Fault is something that is wrong and that somebody tries to mend again and
// again: it vanishes when that works.
type Fault struct {
	Object  string    // what it is about: "Pod default/web", "Node n1"
	Message string    // what is wrong, and what would help if that is known
	Since   time.Time // zero: not known
	Source  string    // of the pod, where it is about what a source delivers
}

// Pod names a pod as the object of a fault.
func Pod(namespace, name string) string { return "Pod " + namespace + "/" + name }

// Join returns all faults, by object and the oldest first, without those that
// another of the same object tells more of.
func Join(lists ...[]Fault) []Fault {
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), a.Since.Compare(b.Since), cmp.Compare(a.Message, b.Message))
	})
	all = slices.Compact(all)
	return slices.DeleteFunc(slices.Clone(all), func(f Fault) bool {
		return slices.ContainsFunc(all, func(other Fault) bool {
			return other.Object == f.Object && len(other.Message) > len(f.Message) && strings.Contains(other.Message, f.Message)
		})
	})
}
