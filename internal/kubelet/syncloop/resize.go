package syncloop

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// A resize is one that is not done.
type resize struct {
	generation int64 // of the pod
	since      time.Time
}

// allocated returns a pod of the API with the resources that it has on this
// node: those of the version that was admitted. running says that the pod is new
// to this agent and runs; what an earlier one told of it is taken then. A static
// pod with other resources is another pod.
func (l *Loop) allocated(p *v1.Pod, running bool) *v1.Pod {
	if staticpod.IsStatic(p) {
		return p
	}
	started := l.pods[p.UID]
	if started == nil && running {
		started = allocation.FromStatus(p)
	}
	if started == nil || !allocation.Differs(p, started) {
		delete(l.resizes, p.UID)
		return p
	}
	if last, told := l.resizes[p.UID]; !told || last.generation != p.Generation {
		l.resizes[p.UID] = resize{p.Generation, time.Now()}
		l.cfg.Log.Warn("resize is not done", "pod", fullName(p), "podUID", p.UID)
		l.cfg.Recorder.Event(p, v1.EventTypeWarning, reason.ResizeInfeasible, allocation.Infeasible)
	}
	return allocation.Keep(p, started)
}
