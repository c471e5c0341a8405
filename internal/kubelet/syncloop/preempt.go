package syncloop

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// A Verdict is whether the node takes a pod.
type Verdict struct {
	Reason, Message string    // why not, or not yet; empty: it does
	Preempt         []*v1.Pod // it does once these have ended
	Wait            bool      // it is not known yet: to be asked again when Decided rings
	Lack            string    // the resource of which there is too little, with Preempt
}

// preemptMessage is upstream's.
const preemptMessage = "Preempted in order to admit critical pod"

// minRoomWait is how long a pod waits for its room at least, however short the
// grace periods are; as upstream's kubelet waits.
const minRoomWait = 10 * time.Second

// A room is what a pod waits for that was admitted and does not fit yet.
type room struct {
	ending []types.UID
	until  time.Time // it starts then, though others have not ended
}

// makeRoom ends pods so that an admitted one fits, and has it wait for that.
func (l *Loop) makeRoom(p *v1.Pod, v Verdict) {
	if len(v.Preempt) == 0 {
		return
	}
	states := l.states()
	r := &room{until: time.Now().Add(minRoomWait)}
	for _, victim := range v.Preempt {
		r.ending = append(r.ending, victim.UID)
		if at := time.Now().Add(graceOf(victim) * 3 / 2); at.After(r.until) {
			r.until = at
		}
		l.preempt(p, victim, states[victim.UID], v.Lack)
	}
	l.rooms[p.UID] = r
}

// preempt ends one pod. One that waits for its turn runs nothing yet, and gives
// its place.
func (l *Loop) preempt(p, victim *v1.Pod, info lifecycle.Info, lack string) {
	if info.State >= lifecycle.Terminating {
		return // it was asked to before
	}
	l.cfg.Log.Warn("ending a pod to make room for a critical one", "pod", fullName(victim), "podUID", victim.UID, "by", fullName(p), "why", lack)
	l.cfg.Recorder.Event(victim, v1.EventTypeWarning, reason.Preempting, preemptMessage)
	l.cfg.Preempted(lack)
	delete(l.turns, victim.UID)
	delete(l.rooms, victim.UID)
	l.cfg.Store.End(victim.UID, reason.Preempting, preemptMessage, true)
	l.cfg.Workers.Update(lifecycle.Request{Kind: lifecycle.Kill, Pod: victim})
}

// keepRooms starts the pods that have room now. It reports whether there were
// any.
func (l *Loop) keepRooms() (changed bool) {
	if len(l.rooms) == 0 {
		return false
	}
	states := l.states()
	for uid, r := range l.rooms {
		p := l.pods[uid]
		waits := slices.ContainsFunc(r.ending, func(other types.UID) bool {
			info, working := states[other]
			return working && info.State < lifecycle.Terminated
		})
		if p != nil && waits && time.Now().Before(r.until) {
			continue
		}
		delete(l.rooms, uid)
		if p != nil {
			l.start(p)
			changed = true
		}
	}
	return changed
}

// graceOf is how long a pod may take to end.
func graceOf(pod *v1.Pod) time.Duration {
	seconds := int64(v1.DefaultTerminationGracePeriodSeconds)
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		seconds = *own
	}
	return time.Duration(seconds) * time.Second
}
