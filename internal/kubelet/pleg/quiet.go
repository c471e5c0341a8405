package pleg

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// quiet holds the pods that somebody works on. A step of a worker changes its pod
// several times, and what the event stream tells of that is of use only when the
// step is done: the worker asks then, and one inspection shows all of it. As the
// step may last, what was told waits for a while at most.
type quiet map[types.UID]*quietPod

type quietPod struct {
	until time.Time
	waits bool // the stream told of it meanwhile
}

// begin has what is told of a pod wait.
func (q quiet) begin(uid types.UID, until time.Time) {
	if p := q[uid]; p != nil {
		p.until = until
		return
	}
	q[uid] = &quietPod{until: until}
}

// end says that the pod is inspected now.
func (q quiet) end(uid types.UID) { delete(q, uid) }

// told reports whether what the stream tells of a pod has to wait.
func (q quiet) told(uid types.UID, now time.Time) bool {
	p := q[uid]
	if p == nil || !now.Before(p.until) {
		return false
	}
	p.waits = true
	return true
}

// waits reports whether the stream has told of a pod, whose inspection is yet to
// come.
func (q quiet) waits(uid types.UID) bool {
	p := q[uid]
	return p != nil && p.waits
}

// over forgets the pods whose time is over, and returns those of which something
// was told, and when the next one's is, or zero.
func (q quiet) over(now time.Time) (due []types.UID, next time.Time) {
	for uid, p := range q {
		if p.until.After(now) {
			if p.waits && (next.IsZero() || p.until.Before(next)) {
				next = p.until
			}
			continue
		}
		if p.waits {
			due = append(due, uid)
		}
		delete(q, uid)
	}
	return due, next
}
