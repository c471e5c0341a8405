// Package doctor looks at a machine and says what keeps a node from running
// on it, what will trouble it, and what to do.
//
// Read only reads, and takes a few hundred milliseconds; Judge is pure. A
// machine that lacks something is never an error of this package: it is a
// finding.
package doctor

import (
	"context"
	"time"
)

// A Level says how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Note    Level = "note"    // good to know; nothing to do
	Warning Level = "warning" // a node runs, and something may go wrong
	Error   Level = "error"   // a node does not start, or its pods do not
)

// A Finding is one thing that was looked at.
type Finding struct {
	ID     string `json:"id"` // does not change between releases
	Level  Level  `json:"level"`
	Found  string `json:"found"`
	Why    string `json:"why,omitempty"`    // it matters
	Remedy string `json:"remedy,omitempty"` // a command where there is one
}

// A Config says which node is meant.
type Config struct {
	Root        string   // the node's folder; need not exist
	NodePID     int      // of the running node; 0 if there is none
	RuntimeDir  string   // of containerd and its company; empty if it was not found
	RuntimeErr  error    // why it was not found
	Programs    []string // that RuntimeDir must hold
	Endpoint    string   // a runtime of the user's own, in place of RuntimeDir
	APIPort     int      // 0: any free one
	KubeletPort int      // likewise
}

// Examine is Read, judged.
func Examine(ctx context.Context, cfg Config, now time.Time) []Finding {
	return Judge(Read(ctx, cfg, now))
}

// Worst returns the worst level among findings; OK of none.
func Worst(findings []Finding) Level {
	order := map[Level]int{OK: 0, Note: 1, Warning: 2, Error: 3}
	worst := OK
	for _, f := range findings {
		if order[f.Level] > order[worst] {
			worst = f.Level
		}
	}
	return worst
}
