package pleg

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Call is a call to the runtime that has had no good answer yet.
type Call struct {
	Name  string    // listCall or inspectCall
	Pod   types.UID // empty: all
	PodIs string    // namespace/name of Pod, if it is known
	Since time.Time // when it began, or the first of those that failed in a row
}

func (c Call) String() string {
	name := c.Name
	switch {
	case c.PodIs != "":
		name += fmt.Sprintf(" %s (%s)", c.PodIs, c.Pod)
	case c.Pod != "":
		name += " " + string(c.Pod)
	}
	return fmt.Sprintf("%s: no good answer since %s (%v)", name, c.Since.Format(time.TimeOnly), time.Since(c.Since).Round(time.Second))
}

// health is what the other goroutines may see of Run's work.
type health struct {
	threshold time.Duration
	name      func(types.UID) string // of a pod, or ""

	mu       sync.Mutex // guards the fields below
	listed   time.Time  // when the last good list began
	unlisted time.Time  // when the first of the bad lists since then began; zero: none
	calls    map[call]time.Time
	failing  map[types.UID]time.Time // pods whose inspections fail, and since when
	pods     int
}

// A call is the key of one call under way. There is one of each at a time.
type call struct {
	name string
	pod  types.UID
}

// The names of calls.
const (
	listCall    = "list pods"
	inspectCall = "inspect pod"
)

func newHealth(threshold time.Duration) health {
	return health{threshold: threshold, name: func(types.UID) string { return "" }, calls: map[call]time.Time{}, failing: map[types.UID]time.Time{}}
}

// Healthy returns nil while the runtime can be listed, and otherwise an error
// in upstream's words that names the calls that hang. A few pods that cannot
// be inspected do not make it unhealthy, more than half of them for longer
// than the threshold do.
func (g *Generator) Healthy() error {
	h := &g.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listed.IsZero() {
		return errors.New("pleg has yet to be successful" + h.hangingLocked(0))
	}
	if age := time.Since(h.listed); age >= h.threshold {
		return fmt.Errorf("pleg was last seen active %v ago; threshold is %v%s",
			age.Round(time.Millisecond), h.threshold, h.hangingLocked(0))
	}
	lost := 0
	for _, since := range h.failing {
		if time.Since(since) >= h.threshold {
			lost++
		}
	}
	if lost > 0 && 2*lost > h.pods {
		return fmt.Errorf("%d of %d pods could not be inspected for %v%s", lost, h.pods, h.threshold, h.hangingLocked(h.threshold))
	}
	return nil
}

// Hanging returns the calls that have had no answer for at least d, and the
// inspections that have failed for as long, oldest first.
func (g *Generator) Hanging(d time.Duration) []Call {
	g.health.mu.Lock()
	defer g.health.mu.Unlock()
	return g.health.callsLocked(d)
}

// failing returns how many pods' last inspection failed.
func (g *Generator) failing() int {
	g.health.mu.Lock()
	defer g.health.mu.Unlock()
	return len(g.health.failing)
}

// age returns how old the last good list is, or 0 if there was none.
func (g *Generator) age() time.Duration {
	listed := g.health.lastList()
	if listed.IsZero() {
		return 0
	}
	return time.Since(listed)
}

// lastList returns when the last good list began, or zero if there was none.
func (h *health) lastList() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listed
}

func (h *health) callsLocked(d time.Duration) []Call {
	oldest := maps.Clone(h.calls)
	if !h.unlisted.IsZero() {
		oldest[call{name: listCall}] = h.unlisted
	}
	for uid, since := range h.failing {
		oldest[call{inspectCall, uid}] = since
	}
	var calls []Call
	for c, since := range oldest {
		if time.Since(since) >= d {
			calls = append(calls, Call{c.name, c.pod, h.name(c.pod), since})
		}
	}
	slices.SortFunc(calls, func(a, b Call) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pod, b.Pod))
	})
	return calls
}

// hangingLocked returns the text that names the oldest calls.
func (h *health) hangingLocked(d time.Duration) string {
	const most = 3
	calls := h.callsLocked(d)
	var text strings.Builder
	for _, c := range calls[:min(len(calls), most)] {
		text.WriteString("; " + c.String())
	}
	if len(calls) > most {
		fmt.Fprintf(&text, "; and %d more", len(calls)-most)
	}
	return text.String()
}

func (h *health) began(c call, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[c] = now
}

func (h *health) ended(c call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.calls, c)
}

func (h *health) setListed(began time.Time, pods int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listed, h.unlisted, h.pods = began, time.Time{}, pods
}

func (h *health) setUnlisted(began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unlisted.IsZero() {
		h.unlisted = began
	}
}

// setFailing notes since when inspections of a pod fail; zero: they do not.
func (h *health) setFailing(uid types.UID, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if since.IsZero() {
		delete(h.failing, uid)
	} else {
		h.failing[uid] = since
	}
}
