package syncloop

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// keepHouse makes what there is match what is wanted, by looking at all of it:
// it heals whatever a lost or early message left behind. Orphans are not ended
// each time that a pod ends, as the list of the runtime is a little behind.
func (l *Loop) keepHouse(orphans bool) {
	l.retryRejected()
	if len(l.resizes) > 0 {
		l.settle()
		l.publish()
	}
	l.addMissing()
	if l.keepOrder() {
		l.publish()
	}
	if !l.allSeen() {
		l.setMirrors()
		return // a source that is silent may want any of what is there
	}
	l.cfg.Workers.SyncKnown(func(uid types.UID) bool { return l.pods[uid] != nil || l.held[uid] != nil })
	if orphans {
		l.endOrphans()
	}
	states := l.states()
	l.cfg.Store.Forget(func(uid types.UID) bool {
		_, working := states[uid]
		return working || l.pods[uid] != nil
	})
	l.setMirrors()
	l.sweep.Ring()
}

// retryRejected asks again about static pods that were not admitted.
func (l *Loop) retryRejected() {
	for uid := range l.rejected {
		if p := l.pods[uid]; p != nil && staticpod.IsStatic(p) && l.admit(p) {
			l.start(p)
		}
	}
}

// addMissing starts the pods that are wanted and have no worker: one whose UID
// was put back after the old instance had ended.
func (l *Loop) addMissing() {
	states := l.states()
	for uid, p := range l.pods {
		if _, working := states[uid]; working {
			continue
		}
		if _, rejected := l.rejected[uid]; !rejected && l.turns[uid] == nil && l.rooms[uid] == nil && !l.asked.Has(uid) {
			l.start(p)
		}
	}
}

// endOrphans stops and removes what only the runtime knows. Of a pod that is
// wanted and does not run yet, as others come first, it may have what was before
// a reboot: the pod's files go on being its own.
func (l *Loop) endOrphans() {
	states := l.states()
	for _, o := range l.cfg.Runtime.Pods() {
		if _, working := states[o.UID]; !working && l.pods[o.UID] == nil && len(o.Sandboxes)+len(o.Containers) > 0 {
			l.cfg.Log.Info("ending a pod that nobody wants", "pod", o.Namespace+"/"+o.Name, "podUID", o.UID)
			l.cfg.Workers.Update(orphan(&o))
		}
	}
}

// orphan asks to end a pod that only the runtime knows.
func orphan(o *observed.Pod) lifecycle.Request {
	return lifecycle.Request{
		Kind:   lifecycle.Remove,
		Orphan: &lifecycle.Orphan{UID: o.UID, Namespace: o.Namespace, Name: o.Name},
	}
}

func (l *Loop) states() map[types.UID]lifecycle.Info {
	states := map[types.UID]lifecycle.Info{}
	for _, info := range l.cfg.Workers.Snapshot() {
		states[info.UID] = info
	}
	return states
}

// running are the pods of which the runtime runs anything.
func (l *Loop) running() sets.Set[types.UID] {
	running := sets.New[types.UID]()
	for _, p := range l.cfg.Runtime.Pods() {
		if runs(&p) {
			running.Insert(p.UID)
		}
	}
	return running
}

func runs(p *observed.Pod) bool {
	for i := range p.Containers {
		if p.Containers[i].State == observed.Running {
			return true
		}
	}
	for i := range p.Sandboxes {
		if p.Sandboxes[i].State == observed.Running {
			return true
		}
	}
	return false
}

// runSweeper sweeps whenever it is asked to, until ctx is done.
func (l *Loop) runSweeper(ctx context.Context) {
	failure := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.sweep:
		}
		err := l.cfg.Sweep(ctx, l.known())
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && failure != "":
			l.cfg.Log.Info("left-over pods are swept again")
			failure = ""
		case err != nil && err.Error() != failure:
			l.cfg.Log.Warn("sweep left-over pods, trying again", "err", err)
			if l.cfg.Node != nil {
				l.cfg.Recorder.Event(l.cfg.Node, v1.EventTypeWarning, reason.ContainerGCFailed, err.Error())
			}
			failure = err.Error()
		}
	}
}

// known returns what must not be swept: the pods that have a worker, those that
// are wanted and may get one later, and those of which the runtime has anything,
// as that may still use their files.
func (l *Loop) known() func(uid types.UID) bool {
	known := sets.New[types.UID]()
	for _, o := range l.cfg.Runtime.Pods() {
		known.Insert(o.UID)
	}
	l.mu.Lock()
	wanted := l.mu.pods
	l.mu.Unlock()
	for _, p := range wanted {
		known.Insert(p.UID)
	}
	return func(uid types.UID) bool { return known.Has(uid) || l.cfg.Known(uid) }
}
