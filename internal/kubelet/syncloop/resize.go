package syncloop

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// A resize is one that is wanted and not allocated.
type resize struct {
	wanted  *v1.Pod // as the API has it
	pending allocation.Pending
	since   time.Time
}

// allocated returns a pod of the API with the resources that it has on this
// node, and notes a resize that it wants: settle grants it. A static pod with
// other resources is another pod.
func (l *Loop) allocated(p *v1.Pod) *v1.Pod {
	if staticpod.IsStatic(p) {
		return p
	}
	started := l.pods[p.UID]
	if started == nil {
		return p
	}
	if ends(p) || !allocation.Differs(p, started) {
		kept := allocation.Keep(p, started)
		l.forgetResize(kept)
		return kept
	}
	r := l.resizes[p.UID]
	if r == nil {
		r = &resize{since: time.Now()}
		l.resizes[p.UID] = r
	}
	r.wanted = p
	kept := allocation.Keep(p, started)
	if r.pending.Generation != p.Generation {
		// Until it is settled, the status must not say that this generation is the one
		// in force: who waits for the resize would take it for done.
		kept.Generation = started.Generation
	}
	return kept
}

// forgetResize notes that nothing more is wanted than what a pod has now.
func (l *Loop) forgetResize(p *v1.Pod) {
	if l.resizes[p.UID] != nil {
		delete(l.resizes, p.UID)
		l.cfg.Resizes.SetPending(p, nil)
	}
}

// adoptAllocations takes pods that run to have the resources that an earlier
// agent told of.
func (l *Loop) adoptAllocations(pods []*v1.Pod) {
	for _, p := range pods {
		if !staticpod.IsStatic(p) && l.pods[p.UID] == nil {
			l.keep(allocation.Keep(p, allocation.FromStatus(p)))
		}
	}
}

// settle grants the resizes that the node has room for and tells why the others
// wait. As upstream, it waits until all sources were seen, and begins with
// those that take nothing, then by priority, by QoS class and by age.
func (l *Loop) settle() {
	if len(l.resizes) == 0 || !l.allSeen() {
		return
	}
	uids := slices.SortedFunc(maps.Keys(l.resizes), func(a, b types.UID) int {
		return cmp.Or(l.rank(a).compare(l.rank(b)), cmp.Compare(a, b))
	})
	for _, uid := range uids {
		if l.pods[uid] == nil {
			delete(l.resizes, uid)
			continue
		}
		l.settleOne(uid, l.resizes[uid])
	}
}

type rank struct {
	grows      bool
	priority   int32
	guaranteed bool
	since      time.Time
}

func (l *Loop) rank(uid types.UID) rank {
	r := l.resizes[uid]
	out := rank{since: r.since, guaranteed: qos.GetPodQOS(r.wanted) == v1.PodQOSGuaranteed}
	if started := l.pods[uid]; started != nil {
		out.grows = allocation.Grows(r.wanted, started)
	}
	if p := r.wanted.Spec.Priority; p != nil {
		out.priority = *p
	}
	return out
}

func (r rank) compare(s rank) int {
	falseFirst := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case b:
			return -1
		default:
			return 1
		}
	}
	return cmp.Or(falseFirst(r.grows, s.grows), cmp.Compare(s.priority, r.priority), falseFirst(s.guaranteed, r.guaranteed), r.since.Compare(s.since))
}

func (l *Loop) settleOne(uid types.UID, r *resize) {
	p := r.wanted
	v := l.cfg.Admit(p, l.active(p))
	if v.Reason == "" {
		l.forgetResize(p)
		l.keep(p)
		l.cfg.Log.Info("resize starts", "pod", fullName(p), "podUID", uid)
		l.cfg.Recorder.Event(p, v1.EventTypeNormal, reason.ResizeStarted, allocation.Tell("started", p, ""))
		l.cfg.Workers.Update(lifecycle.Request{Kind: lifecycle.Update, Pod: p})
		return
	}
	now := allocation.Pending{Reason: v1.PodReasonDeferred, Message: v.Message, Generation: p.Generation}
	if r.pending == now {
		return
	}
	if r.pending.Generation != now.Generation || r.pending.Reason != now.Reason {
		l.cfg.Log.Warn("resize waits", "pod", fullName(p), "podUID", uid, "why", v.Message)
		l.cfg.Recorder.Event(p, v1.EventTypeWarning, reason.ResizeDeferred, allocation.Tell(now.Reason, p, v.Message))
	}
	told := r.pending.Generation
	r.pending = now
	l.cfg.Resizes.SetPending(p, &now)
	if told == now.Generation || l.turns[uid] != nil || l.rooms[uid] != nil || l.asked.Has(uid) {
		l.cfg.Workers.Poke(uid)
		return
	}
	kept := allocation.Keep(p, l.pods[uid])
	l.keep(kept)
	l.cfg.Workers.Update(lifecycle.Request{Kind: lifecycle.Update, Pod: kept})
}
