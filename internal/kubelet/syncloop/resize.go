package syncloop

import (
	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

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
	if generation, told := l.resizes[p.UID]; !told || generation != p.Generation {
		l.cfg.Log.Warn("resize is not done", "pod", fullName(p), "podUID", p.UID)
		l.cfg.Recorder.Event(p, v1.EventTypeWarning, reason.ResizeInfeasible, allocation.Infeasible)
	}
	l.resizes[p.UID] = p.Generation
	return allocation.Keep(p, started)
}
