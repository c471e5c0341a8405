package syncloop

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/startorder"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// orderPeriod is how often it is looked whether pods that wait for others may
// start, or stop, while there are any.
const orderPeriod = 200 * time.Millisecond

// A turn is a pod that is admitted and not started yet, as others come first.
type turn struct {
	why   startorder.Wait
	since time.Time
}

// start starts a pod once those that it comes after are ready. One that runs
// is adopted, and one that takes the place of a pod that runs does so at once:
// the order is one of starts, and takes nothing down.
func (l *Loop) start(p *v1.Pod) {
	delete(l.held, p.UID)
	if l.rooms[p.UID] != nil {
		return // it starts when there is room
	}
	if !startorder.Ordered(p) || l.runsNamed(p) {
		delete(l.turns, p.UID)
		l.create(p)
		return
	}
	if l.turns[p.UID] == nil { // judged when all of the set is known
		l.turns[p.UID] = &turn{since: time.Now()}
	}
}

// runsNamed reports whether the runtime runs anything of a pod, or of an older
// one of its name.
func (l *Loop) runsNamed(p *v1.Pod) bool {
	for _, o := range l.cfg.Runtime.Pods() {
		if o.Namespace == p.Namespace && o.Name == p.Name && runs(&o) {
			return true
		}
	}
	return false
}

// keepOrder starts and stops the pods whose turn has come. It reports whether
// what is to be said of them is another.
func (l *Loop) keepOrder() (changed bool) {
	changed = l.keepRooms()
	for uid, t := range l.turns {
		p := l.pods[uid]
		if p == nil {
			delete(l.turns, uid)
			continue
		}
		why := startorder.Waits(p, l.static, l.cfg.Store.Get)
		if why.Why == "" {
			delete(l.turns, uid)
			l.cfg.Log.Debug("the pods before it are ready", "pod", fullName(p), "podUID", uid)
			l.create(p)
			changed = true
			continue
		}
		if why != t.why {
			t.why, changed = why, true
			l.tellTurn(p, why)
		}
	}
	for uid, p := range l.held {
		if !l.endsBefore(p) {
			delete(l.held, uid)
			l.cfg.Workers.Update(lifecycle.Request{Kind: lifecycle.Remove, Pod: p})
		}
	}
	return changed
}

func (l *Loop) tellTurn(p *v1.Pod, why startorder.Wait) {
	kind := v1.EventTypeNormal
	if why.Wrong {
		kind = v1.EventTypeWarning
	}
	l.cfg.Log.Info("pod waits for its turn", "pod", fullName(p), "podUID", p.UID, "why", why.Why)
	l.cfg.Recorder.Event(p, kind, reason.WaitingForPod, why.Why)
}

// removeAll removes pods, each before those that it comes after.
func (l *Loop) removeAll(pods []*v1.Pod) {
	for _, group := range startorder.Stops(pods) {
		for _, p := range group {
			l.remove(p)
		}
	}
}

// endsBefore reports whether a pod that came after p, and goes too, has not
// ended. A pod that stays is no reason to wait.
func (l *Loop) endsBefore(p *v1.Pod) bool {
	if !staticpod.IsStatic(p) {
		return false
	}
	for _, other := range l.held {
		if startorder.Names(other, p) {
			return true
		}
	}
	for _, other := range l.ending(lifecycle.Terminated - 1) {
		if startorder.Names(other, p) {
			return true
		}
	}
	return false
}

func (l *Loop) turnFaults() []fault.Fault {
	var faults []fault.Fault
	for uid, t := range l.turns {
		if p := l.pods[uid]; p != nil && t.why.Why != "" {
			faults = append(faults, fault.Fault{Object: fault.Pod(p.Namespace, p.Name), Message: t.why.Why, Since: t.since})
		}
	}
	return faults
}

// endingOrHeld are the static pods that no source has any more and that are not
// gone.
func (l *Loop) endingOrHeld() []*v1.Pod {
	return slices.AppendSeq(l.ending(lifecycle.Finished-1), maps.Values(l.held))
}
