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
	marks     map[types.UID]mark  // pods to inspect
	quiet     map[types.UID]bool  // pods that somebody began to work on, and of which nobody asked for an inspection since
	strangers map[string]struct{} // sandboxes and containers that changed, of whose pod the event said nothing
	stream    streamState
}

// A mark says why a pod is to be inspected.
type mark struct {
	told  bool // the event stream named it
	asked bool // somebody wants to know
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
		marks:     map[types.UID]mark{},
		quiet:     map[types.UID]bool{},
		strangers: map[string]struct{}{},
	}
}

func (i *inbox) tell(uid types.UID) {
	i.mu.Lock()
	m := i.marks[uid]
	m.told = true
	i.marks[uid] = m
	i.mu.Unlock()
	i.wake.Ring()
}

func (i *inbox) ask(uid types.UID) {
	i.mu.Lock()
	m := i.marks[uid]
	m.asked = true
	i.marks[uid] = m
	delete(i.quiet, uid)
	i.mu.Unlock()
	i.wake.Ring()
}

// hush wakes nobody: it says what to do with what comes.
func (i *inbox) hush(uid types.UID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.quiet[uid] = true
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

// A batch is what was in the inbox.
type batch struct {
	marks     map[types.UID]mark
	quiet     map[types.UID]bool
	strangers map[string]struct{}
	stream    streamState
}

// empty returns what is in the inbox and empties it; the state of the stream
// stays.
func (i *inbox) empty() batch {
	i.mu.Lock()
	defer i.mu.Unlock()
	b := batch{stream: i.stream}
	if len(i.marks) > 0 {
		b.marks, i.marks = i.marks, map[types.UID]mark{}
	}
	if len(i.quiet) > 0 {
		b.quiet, i.quiet = i.quiet, map[types.UID]bool{}
	}
	if len(i.strangers) > 0 {
		b.strangers, i.strangers = i.strangers, map[string]struct{}{}
	}
	i.stream.broke = false
	return b
}
