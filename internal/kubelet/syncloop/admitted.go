package syncloop

import (
	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// Admitted returns the pods of the API that this node has taken, with their newest
// status, and whether the API has said since the start which pods there are. It is
// what a node needs to know to start them again without the API.
func (l *Loop) Admitted() (pods []*v1.Pod, seen bool) {
	l.mu.Lock()
	all, rejected, seen := l.mu.pods, l.mu.rejected, l.mu.seen
	l.mu.Unlock()
	for _, p := range all {
		if _, ok := rejected[p.UID]; !ok && !staticpod.IsStatic(p) {
			pods = append(pods, l.withStatus(p))
		}
	}
	return pods, seen
}
