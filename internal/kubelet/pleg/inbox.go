package pleg

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/wake"
)

// An inbox is where other goroutines leave what Run's must do. What is left
// twice is done once, so it never fills up.
type inbox struct {
	wake wake.Bell // room for one: something is in the inbox

	mu        sync.Mutex          // guards the fields below
	marks     map[types.UID]bool  // pods to inspect; true if the event stream named it
	strangers map[string]struct{} // sandboxes and containers that changed, of whose pod the event said nothing
	stream    streamState
}

// A streamState says whether the event stream can be relied on.
type streamState struct {
	opened time.Time // zero: not open
	heard  time.Time // when it brought its first event
	broke  bool      // it was open and broke since the inbox was last emptied
}

func newInbox() inbox {
	return inbox{
		wake:      wake.NewBell(),
		marks:     map[types.UID]bool{},
		strangers: map[string]struct{}{},
	}
}

func (i *inbox) mark(uid types.UID, byEvent bool) {
	i.mu.Lock()
	i.marks[uid] = i.marks[uid] || byEvent
	i.mu.Unlock()
	i.wake.Ring()
}

func (i *inbox) stranger(id string) {
	i.mu.Lock()
	i.strangers[id] = struct{}{}
	i.mu.Unlock()
	i.wake.Ring()
}

func (i *inbox) streamOpened(now time.Time) {
	i.mu.Lock()
	i.stream.opened, i.stream.heard = now, time.Time{}
	i.mu.Unlock()
	i.wake.Ring()
}

func (i *inbox) streamHeard(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stream.heard.IsZero() {
		i.stream.heard = now
	}
}

func (i *inbox) streamBroke() {
	i.mu.Lock()
	i.stream = streamState{broke: true}
	i.mu.Unlock()
	i.wake.Ring()
}

// empty returns what is in the inbox and empties it; the state of the stream
// stays.
func (i *inbox) empty() (marks map[types.UID]bool, strangers map[string]struct{}, stream streamState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.marks) > 0 {
		marks, i.marks = i.marks, map[types.UID]bool{}
	}
	if len(i.strangers) > 0 {
		strangers, i.strangers = i.strangers, map[string]struct{}{}
	}
	stream = i.stream
	i.stream.broke = false
	return marks, strangers, stream
}
