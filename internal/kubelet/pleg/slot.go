package pleg

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/retry"
)

// How long a pod whose inspection failed waits for the next one, unless
// something asks for it earlier.
const (
	minRetry = time.Second
	maxRetry = 10 * time.Second
)

// A record says in which state each sandbox and container of a pod was. It is a
// list, not a map: a pod has few, and mostly in the order of the last time.
type record []recorded

type recorded struct {
	id    string
	state observed.State
}

func recordOf(p *observed.Pod) record {
	r := make(record, 0, len(p.Sandboxes)+len(p.Containers))
	for i := range p.Sandboxes {
		r = append(r, recorded{p.Sandboxes[i].ID, p.Sandboxes[i].State})
	}
	for i := range p.Containers {
		r = append(r, recorded{p.Containers[i].ID, p.Containers[i].State})
	}
	return r
}

// matches reports whether r is p's record, whatever the order, without making
// one: a relist asks it of every pod.
func (r record) matches(p *observed.Pod) bool {
	if len(r) != len(p.Sandboxes)+len(p.Containers) {
		return false
	}
	for i := range p.Sandboxes {
		if !r.has(i, p.Sandboxes[i].ID, p.Sandboxes[i].State) {
			return false
		}
	}
	for i := range p.Containers {
		if !r.has(len(p.Sandboxes)+i, p.Containers[i].ID, p.Containers[i].State) {
			return false
		}
	}
	return true
}

// has reports whether one with that ID, probably the one at place, is in r in
// that state.
func (r record) has(place int, id string, state observed.State) bool {
	if r[place].id == id {
		return r[place].state == state
	}
	return slices.Contains(r, recorded{id, state})
}

// podOf is what a list would tell of an inspected pod.
func podOf(s *observed.Status) observed.Pod {
	p := observed.Pod{
		UID: s.UID, Name: s.Name, Namespace: s.Namespace,
		Sandboxes: make([]observed.Sandbox, 0, len(s.Sandboxes)), Containers: make([]observed.Container, 0, len(s.Containers)),
	}
	for _, box := range s.Sandboxes {
		state := observed.Exited
		if box.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			state = observed.Running
		}
		p.Sandboxes = append(p.Sandboxes, observed.Sandbox{
			ID:        box.GetId(),
			Attempt:   box.GetMetadata().GetAttempt(),
			State:     state,
			CreatedAt: time.Unix(0, box.GetCreatedAt()),
		})
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		p.Containers = append(p.Containers, observed.Container{
			ID:        c.ID,
			Name:      c.Name,
			SandboxID: c.SandboxID,
			Attempt:   uint32(max(0, c.RestartCount)), //nolint:gosec // not negative
			State:     c.State,
			CreatedAt: c.CreatedAt,
		})
	}
	return p
}

// A slot is one pod's place.
//
//	         mark                   take
//	quiet ────────► due (in a queue) ────► busy ──┐
//	  ▲              ▲                      │ │   │ mark: once more
//	  │              └── mark, retry time ──┼─┼───┘
//	  └────────────── answered ─────────────┘ │
//	                 (failed: retry time set) ◄┘
//
// A slot goes away when the runtime has nothing of its pod any more.
type slot struct {
	uid     types.UID
	listed  int       // the number of the last list that showed the pod
	seen    record    // as of the last good inspection; nil: none yet
	askedAt time.Time // when that began

	due   bool
	busy  bool
	again bool // marked while busy

	byList  bool // a list found the pod changed, and no event has told of it
	unheard bool // and the inspection agreed: the event may still come before the next list
	told    bool // somebody was sent an event about the pod

	failures int       // inspections that failed in a row
	failedAt time.Time // when the first of them began
	retryAt  time.Time
	suspect  bool // the last inspection ran out of time
}

// heard notes that the event stream told of the pod.
func (p *slot) heard() { p.byList, p.unheard = false, false }

// slots is all slots and the two queues of those that are due. It is one
// goroutine's, and does nothing by itself.
type slots struct {
	byUID   map[types.UID]*slot
	failing map[types.UID]*slot // those that wait for their retry time

	queue, suspects         []*slot // due, in order
	places, suspectPlaces   int     // how many may be busy
	running, suspectRunning int     // how many are
}

func newSlots(places int) *slots {
	return &slots{
		byUID:         map[types.UID]*slot{},
		failing:       map[types.UID]*slot{},
		places:        places,
		suspectPlaces: max(1, places/4),
	}
}

// get returns the pod's slot, made if need be.
func (s *slots) get(uid types.UID) *slot {
	if s.byUID[uid] == nil {
		s.byUID[uid] = &slot{uid: uid}
	}
	return s.byUID[uid]
}

// mark makes a slot due.
func (s *slots) mark(p *slot) {
	switch {
	case p.busy:
		p.again = true
	case p.due:
	case p.suspect:
		p.due = true
		s.suspects = append(s.suspects, p)
	default:
		p.due = true
		s.queue = append(s.queue, p)
	}
}

// retry marks the slots whose retry time has come and returns when the next
// one's does, or the zero time.
func (s *slots) retry(now time.Time) (next time.Time) {
	for _, p := range s.failing {
		switch {
		case p.due || p.busy:
		case !p.retryAt.After(now):
			s.mark(p)
		case next.IsZero() || p.retryAt.Before(next):
			next = p.retryAt
		}
	}
	return next
}

// take returns the next slot to inspect and makes it busy, or nil if there is
// none or no place for it.
func (s *slots) take() *slot {
	if s.running >= s.places {
		return nil
	}
	var p *slot
	switch {
	case len(s.queue) > 0:
		p, s.queue = s.queue[0], s.queue[1:]
	case len(s.suspects) > 0 && s.suspectRunning < s.suspectPlaces:
		p, s.suspects = s.suspects[0], s.suspects[1:]
		s.suspectRunning++
	default:
		return nil
	}
	s.running++
	p.due, p.busy = false, true
	return p
}

// answered ends an inspection that began at asked. With an error the slot is
// due again after a while, which grows with every failure in a row.
func (s *slots) answered(p *slot, err error, asked, now time.Time) {
	s.running--
	if p.suspect {
		s.suspectRunning--
	}
	p.busy = false
	p.suspect = errors.Is(err, context.DeadlineExceeded)
	if err == nil {
		p.failures, p.failedAt, p.askedAt = 0, time.Time{}, asked
		delete(s.failing, p.uid)
	} else {
		if p.failures == 0 {
			p.failedAt = asked
		}
		p.failures++
		p.retryAt = now.Add(retry.Pause(p.failures, minRetry, maxRetry))
		s.failing[p.uid] = p
	}
	if p.again {
		p.again = false
		s.mark(p)
	}
}

// drop removes a slot that is neither due nor busy.
func (s *slots) drop(p *slot) {
	delete(s.byUID, p.uid)
	delete(s.failing, p.uid)
}
