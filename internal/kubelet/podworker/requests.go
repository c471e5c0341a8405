package podworker

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// Update takes a request. It never blocks; the worker sees the newest request,
// not each of them.
func (w *Workers) Update(req lifecycle.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.mu.workers[req.UID()]
	switch {
	case k == nil:
		if req.Kind != lifecycle.Remove || req.Orphan != nil {
			w.addLocked(&req)
		}
	case req.Orphan != nil: // an older listing: its worker knows better
	case k.removed:
		w.putBackLocked(k, &req)
	case k.state == lifecycle.Finished:
		w.updateFinishedLocked(k, &req)
	default:
		w.acceptLocked(k, &req)
	}
}

// putBackLocked handles a UID that its source removed and whose old instance
// has not ended yet.
func (w *Workers) putBackLocked(k *worker, req *lifecycle.Request) {
	restart := *req
	switch {
	case req.Kind == lifecycle.Remove:
		k.restart = nil
		w.acceptLocked(k, req) // perhaps with a shorter grace period
	case req.Kind == lifecycle.Create:
		k.restart = &restart
	case k.restart != nil: // it is for the next instance
		if req.Kind == lifecycle.Update {
			restart.Kind = k.restart.Kind
		}
		k.restart = &restart
	default:
		w.acceptLocked(k, req)
	}
}

// updateFinishedLocked handles a UID that has ended and that its source still
// had: it does not run again.
func (w *Workers) updateFinishedLocked(k *worker, req *lifecycle.Request) {
	if req.Kind == lifecycle.Remove {
		w.addLocked(&lifecycle.Request{Kind: lifecycle.Remove, Orphan: remains(k.pod)})
		return
	}
	if req.Pod != nil {
		k.pod = req.Pod
	}
}

func (w *Workers) acceptLocked(k *worker, req *lifecycle.Request) {
	if interrupt := k.accept(req); interrupt && k.cancel != nil {
		k.cancel()
	}
	k.wake.Ring()
}

// addLocked makes a worker for a UID that has none.
func (w *Workers) addLocked(req *lifecycle.Request) *worker {
	k := &worker{
		uid:      req.UID(),
		fullName: req.FullName(),
		orphan:   req.Orphan,
		asked:    time.Now(),
		wake:     wake.NewBell(),
		pokes:    wake.NewBell(),
		done:     make(chan struct{}),
	}
	k.accept(req)
	w.mu.workers[k.uid] = k
	if req.Orphan != nil || staticpod.IsStatic(req.Pod) {
		w.mu.turns[k.fullName] = append(w.mu.turns[k.fullName], k)
	}
	w.mu.idle = append(w.mu.idle, k)
	w.spawn.Ring()
	return k
}

// Poke hints that something happened to a pod, so that its worker looks at it
// again. An unknown UID is ignored.
func (w *Workers) Poke(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.mu.workers[uid]; k != nil {
		k.pokes.Ring()
	}
}

// SyncKnown removes every pod that is not wanted. From the first call on, the
// workers answer for all pods: who is not here does not run. Call it only when
// every source has told what it wants, and each wanted pod was passed to Update.
func (w *Workers) SyncKnown(wanted func(uid types.UID) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.synced = true
	for uid, k := range w.mu.workers {
		switch {
		case wanted(uid):
		case k.removed:
			k.restart = nil
		case k.state == lifecycle.Finished:
			w.updateFinishedLocked(k, &lifecycle.Request{Kind: lifecycle.Remove})
		default:
			w.acceptLocked(k, &lifecycle.Request{Kind: lifecycle.Remove, Pod: k.pod})
		}
	}
}

// Snapshot returns what is known of every pod, in no order.
func (w *Workers) Snapshot() []lifecycle.Info {
	w.mu.Lock()
	defer w.mu.Unlock()
	infos := make([]lifecycle.Info, 0, len(w.mu.workers))
	for uid, k := range w.mu.workers {
		infos = append(infos, lifecycle.Info{UID: uid, State: k.state, Removed: k.removed, Pod: k.pod})
	}
	return infos
}

// Faults returns whose steps fail.
func (w *Workers) Faults() []fault.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	var faults []fault.Fault
	for _, k := range w.mu.workers {
		if k.failure != "" {
			faults = append(faults, fault.Fault{Object: "Pod " + k.fullName, Message: k.failure, Since: k.failing})
		}
	}
	return faults
}

// Known reports whether a pod has a worker, or whether it may get one because
// not all sources have been seen: whether its folders, cgroups and mounts are
// to be kept.
func (w *Workers) Known(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.mu.synced || w.mu.workers[uid] != nil
}

// Synced reports whether it is known which pods are wanted: every source was
// seen.
func (w *Workers) Synced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.synced
}

// CouldHaveRunning reports whether containers of a pod may run.
func (w *Workers) CouldHaveRunning(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.mu.workers[uid]; k != nil {
		return k.state < lifecycle.Terminated
	}
	return !w.mu.synced
}

// IsTerminating reports whether the end of a pod was asked for; it is false for
// a pod that is not known.
func (w *Workers) IsTerminating(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.mu.workers[uid]
	return k != nil && k.state >= lifecycle.Terminating
}

// IsFinished reports whether nothing is left to do for a pod.
func (w *Workers) IsFinished(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.mu.workers[uid]; k != nil {
		return k.state == lifecycle.Finished
	}
	return w.mu.synced
}

// WaitFinished waits until nothing of a pod runs any more and what it held, such
// as its volumes, is given back. It does not ask for that: see Update.
func (w *Workers) WaitFinished(ctx context.Context, uid types.UID) error {
	w.mu.Lock()
	k := w.mu.workers[uid]
	w.mu.Unlock()
	if k == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-k.done:
		return nil
	}
}
