// Package wake is how goroutines tell another one that there is something to
// do, without saying what: it looks for itself.
//
// A Bell may be used by any goroutine.
package wake

// A Bell remembers that it was rung, once however often, until somebody
// receives from it. It is never closed.
type Bell chan struct{}

// NewBell returns a Bell that was not rung.
func NewBell() Bell { return make(Bell, 1) }

// Ring never blocks.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default: // it was rung, and nobody has heard it yet
	}
}
