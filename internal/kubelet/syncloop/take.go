package syncloop

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// take merges what a source says and does what follows.
func (l *Loop) take(d desired.Delivery) {
	for _, u := range l.cfg.Desired.Merge(d, time.Now()) {
		if len(u.Pods) > 0 {
			l.cfg.Log.Debug("pods changed", "op", u.Op.String(), "source", u.Source)
		}
		l.dispatch(u)
	}
	if d.Kind == desired.Full { // nothing else says what the source does not have
		l.seen.Insert(d.Source)
	}
	l.keepOrder()
	l.settle()
	l.tellFaults()
	l.publish()
	if l.pictured != (picture{l.statics, l.allSeen()}) {
		l.setMirrors()
	}
	if l.allSeen() {
		l.allTaken()
	}
}

func (l *Loop) dispatch(u desired.Update) {
	pods, mirrors := split(u.Pods)
	l.takeMirrors(u.Op, mirrors)
	switch u.Op {
	case desired.OpRemove:
		l.removeAll(pods)
	case desired.OpAdd:
		l.add(pods, false)
	case desired.OpRestore:
		l.add(pods, true)
	case desired.OpUpdate, desired.OpDelete:
		for _, p := range pods {
			l.update(p)
		}
	case desired.OpReconcile:
		for _, p := range pods {
			l.reconcile(p)
		}
	case desired.OpSet: // not told in the mode of the loop
	}
}

func split(pods []*v1.Pod) (own, mirrors []*v1.Pod) {
	for _, p := range pods {
		if staticpod.IsMirror(p) {
			mirrors = append(mirrors, p)
		} else {
			own = append(own, p)
		}
	}
	return own, mirrors
}

// add takes in new pods. Those that run already come first, so that they are
// counted when others are admitted; the others by age, as upstream does. Restored
// pods were admitted by an earlier agent, and nobody is asked again.
func (l *Loop) add(pods []*v1.Pod, restored bool) {
	running := l.running()
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b *v1.Pod) int {
		if r := running.Has(a.UID); r != running.Has(b.UID) {
			if r {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix())
	})
	// All of them first: each takes room that another's resize may want.
	l.adoptAllocations(slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return !running.Has(p.UID) }))
	for _, p := range pods {
		l.observe(p)
		p = l.allocated(p)
		l.keep(p)
		if !restored && !running.Has(p.UID) && !ends(p) && !l.admit(p) {
			continue
		}
		l.start(p)
	}
}

// create starts a pod, after what the runtime has of a static pod's
// predecessors: they may be of an earlier agent and have no worker.
func (l *Loop) create(p *v1.Pod) {
	if staticpod.IsStatic(p) {
		known := l.states()
		for _, o := range l.cfg.Runtime.Pods() {
			if o.UID == p.UID || o.Namespace != p.Namespace || o.Name != p.Name || l.pods[o.UID] != nil {
				continue
			}
			if _, ok := known[o.UID]; !ok {
				l.cfg.Log.Info("ending an older pod before its successor starts", "pod", fullName(p), "podUID", o.UID)
				l.cfg.Workers.Update(orphan(&o))
			}
		}
	}
	l.cfg.Workers.Update(lifecycle.Request{Kind: lifecycle.Create, Pod: p, Mirror: l.mirrorOf(p)})
}

func (l *Loop) update(p *v1.Pod) {
	l.observe(p)
	p = l.allocated(p)
	l.keep(p)
	if _, ok := l.rejected[p.UID]; ok && staticpod.IsStatic(p) {
		if l.admit(p) {
			l.start(p)
		}
		return
	}
	if l.asked.Has(p.UID) && ends(p) {
		l.asked.Delete(p.UID)
		l.start(p) // and ends at once, whoever is asked
		return
	}
	if l.turns[p.UID] != nil || l.rooms[p.UID] != nil || l.asked.Has(p.UID) {
		return // it starts as it is then
	}
	l.cfg.Workers.Update(lifecycle.Request{Kind: lifecycle.Update, Pod: p, Mirror: l.mirrorOf(p)})
}

// reconcile takes in that only the status changed in the API. Conditions of
// others may be readiness gates.
func (l *Loop) reconcile(p *v1.Pod) {
	l.observe(p)
	p = l.allocated(p)
	l.keep(p)
	if len(p.Spec.ReadinessGates) > 0 {
		l.cfg.Workers.Poke(p.UID)
	}
}

func (l *Loop) remove(p *v1.Pod) {
	l.drop(p)
	delete(l.rejected, p.UID)
	delete(l.turns, p.UID)
	delete(l.rooms, p.UID)
	l.asked.Delete(p.UID)
	l.forgetResize(p)
	if l.endsBefore(p) {
		l.held[p.UID] = p
		return
	}
	l.cfg.Workers.Update(lifecycle.Request{Kind: lifecycle.Remove, Pod: p})
}

// admit asks whether the node takes a pod, and rejects it if not. A rejected
// pod of the API ends, as upstream has it: whoever made it makes another. Nobody
// makes a static pod again, so it is asked about again later.
func (l *Loop) admit(p *v1.Pod) bool {
	v := l.cfg.Admit(p, l.active(p))
	if v.Wait {
		l.asked.Insert(p.UID)
		return false
	}
	l.asked.Delete(p.UID)
	was, before := l.rejected[p.UID]
	if v.Reason == "" || len(v.Preempt) > 0 {
		l.makeRoom(p, v)
		if before {
			delete(l.rejected, p.UID)
			l.cfg.Statuses.Admit(p.UID)
			l.cfg.Log.Info("pod admitted after all", "pod", fullName(p), "podUID", p.UID)
		}
		return true
	}
	now := rejection{v.Reason, v.Message}
	l.rejected[p.UID] = now
	if before && was == now {
		return false
	}
	l.cfg.Log.Warn("pod rejected", "pod", fullName(p), "podUID", p.UID, "reason", v.Reason, "why", v.Message)
	l.cfg.Recorder.Event(p, v1.EventTypeWarning, v.Reason, v.Message)
	l.cfg.Statuses.Reject(p, v.Reason, v.Message)
	if !staticpod.IsStatic(p) {
		l.cfg.Workers.Update(lifecycle.Request{Kind: lifecycle.Kill, Pod: p})
	}
	return false
}

// askAgain asks about the pods of which it was not known whether the node takes
// them. One that is to end by now needs not be admitted.
func (l *Loop) askAgain() {
	for uid := range l.asked {
		p := l.pods[uid]
		if p != nil && (ends(p) || l.admit(p)) {
			l.asked.Delete(uid)
			l.start(p)
		}
	}
	l.publish()
}

// active are the pods, beside one, that hold resources of the node.
func (l *Loop) active(but *v1.Pod) []*v1.Pod {
	states := l.states()
	var active []*v1.Pod
	for uid, p := range l.pods {
		_, rejected := l.rejected[uid]
		if uid == but.UID || rejected || lifecycle.Terminal(p) || states[uid].State >= lifecycle.Terminated {
			continue
		}
		active = append(active, p)
	}
	return active
}

// ends reports whether a pod is not going to run, so that nobody needs to admit
// it.
func ends(p *v1.Pod) bool { return p.DeletionTimestamp != nil || lifecycle.Terminal(p) }

// observe tells the statuses what the API has of a pod.
func (l *Loop) observe(p *v1.Pod) {
	if staticpod.IsStatic(p) {
		l.cfg.Statuses.ObserveMirror(p, l.mirrorOf(p))
		return
	}
	l.cfg.Statuses.Observe(p)
}

// mirrorOf returns the mirror that stands for this version of a static pod, or
// nil.
func (l *Loop) mirrorOf(p *v1.Pod) *v1.Pod {
	if m := l.mirrors[fullName(p)]; m != nil && staticpod.IsStatic(p) && staticpod.Mirrors(m, p) {
		return m
	}
	return nil
}

// takeMirrors takes in what became of mirrors, and tells the statuses of the
// static pods of their names; one that still ends has its mirror, too.
func (l *Loop) takeMirrors(op desired.Op, mirrors []*v1.Pod) {
	if len(mirrors) == 0 {
		return
	}
	ending := map[string][]*v1.Pod{}
	for _, p := range l.ending(lifecycle.Finished) {
		ending[fullName(p)] = append(ending[fullName(p)], p)
	}
	l.statics++
	for _, m := range mirrors {
		name := fullName(m)
		if op != desired.OpRemove {
			l.mirrors[name] = m
		} else if now := l.mirrors[name]; now != nil && now.UID == m.UID { // no other has its name by now
			delete(l.mirrors, name)
		}
		if p := l.static[name]; p != nil {
			l.observe(p)
		}
		for _, p := range ending[name] {
			if l.pods[p.UID] == nil {
				l.observe(p)
			}
		}
	}
}

// ending are the static pods that no source has any more and whose workers have
// not got beyond a state.
func (l *Loop) ending(last lifecycle.State) []*v1.Pod {
	var ending []*v1.Pod
	for _, info := range l.cfg.Workers.Snapshot() {
		if p := info.Pod; p != nil && info.Removed && info.State <= last && staticpod.IsStatic(p) {
			ending = append(ending, p)
		}
	}
	return ending
}

// setMirrors tells what is to be seen in the API.
func (l *Loop) setMirrors() {
	l.pictured = picture{l.statics, l.allSeen()}
	l.cfg.Mirrors.Set(slices.Collect(maps.Values(l.static)), l.endingOrHeld(), slices.Collect(maps.Values(l.mirrors)), l.allSeen())
}

func (l *Loop) allSeen() bool { return l.cfg.Desired.SeenAllSources(l.seen) }

func (l *Loop) faults() []fault.Fault {
	var faults []fault.Fault
	for _, f := range l.cfg.Desired.Faults() {
		faults = append(faults, fault.Fault{Object: fault.Pod(f.Pod.Namespace, f.Pod.Name), Message: f.Message, Since: l.told[keyOf(f)], Source: f.Source})
	}
	for uid, r := range l.resizes {
		if p := l.pods[uid]; p != nil && r.pending.Message != "" {
			faults = append(faults, fault.Fault{Object: fault.Pod(p.Namespace, p.Name), Message: "its resize waits: " + r.pending.Message, Since: r.since})
		}
	}
	return append(faults, l.turnFaults()...)
}

// tellFaults makes an event of each new fault.
func (l *Loop) tellFaults() {
	now := map[faultKey]time.Time{}
	for _, f := range l.cfg.Desired.Faults() {
		key := keyOf(f)
		since, told := l.told[key]
		if !told {
			since = time.Now()
			l.cfg.Log.Warn("pod left out", "pod", fullName(f.Pod), "source", f.Source, "why", f.Message)
			l.cfg.Recorder.Event(f.Pod, v1.EventTypeWarning, reason.FailedValidation, f.Message)
		}
		now[key] = since
	}
	l.told = now
}

func keyOf(f desired.Fault) faultKey { return faultKey{f.Source, f.Message, f.Pod.UID} }

func fullName(p *v1.Pod) string { return p.Namespace + "/" + p.Name }
