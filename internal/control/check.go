package control

import "github.com/holdfast-dev/holdfast/internal/manifestdiff"

// A Check says what is wrong with manifests that no node has read.
type Check struct {
	Documents int           `json:"documents"` // that are good
	Files     int           `json:"files"`     // that were read
	Faults    []Fault       `json:"faults"`
	Ignored   []IgnoredFile `json:"ignored"`
}

// A Difference is between what manifests say and what is in force on a node.
type Difference struct {
	Node    string                `json:"node"`
	Running bool                  `json:"running"` // whether a process runs the node
	Changes []manifestdiff.Change `json:"changes"` // by object
	Faults  []Fault               `json:"faults"`  // of what would not be taken
	Ignored []IgnoredFile         `json:"ignored"`
}

// None reports whether the manifests say what is in force, and nothing else.
func (d Difference) None() bool {
	for _, c := range d.Changes {
		if c.Action != manifestdiff.Unchanged {
			return false
		}
	}
	return len(d.Faults) == 0
}
