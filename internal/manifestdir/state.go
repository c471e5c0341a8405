package manifestdir

import (
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// A State is what a folder last said, and whether it says anything now.
type State struct {
	Set
	// LastGood is when the folder could last be read; zero: not in this run.
	LastGood time.Time
	// Failed is why the folder cannot be read now, and Since since when; empty
	// and zero while it can.
	Failed string
	Since  time.Time
}

// State returns what the folder last said. It may be called at any time, from
// any goroutine.
func (d *Dir) State() State {
	d.shown.mu.Lock()
	defer d.shown.mu.Unlock()
	return d.shown.state
}

// shown is a State that is written by Run and read by anybody.
type shown struct {
	mu    sync.Mutex
	state State
}

// put takes what came of a reading at a time. A zero time is that of a set
// that was restored: nobody has read the folder.
func (s *shown) put(set Set, failed *manifest.Fault, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Set = set
	if failed == nil {
		s.state.LastGood, s.state.Failed, s.state.Since = now, "", time.Time{}
		return
	}
	if s.state.Failed == "" {
		s.state.Since = now
	}
	s.state.Failed = failed.Message
}
