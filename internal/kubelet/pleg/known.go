package pleg

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// known is what the runtime has, as of the last list and the inspections since.
type known struct {
	mu   sync.Mutex // guards pods
	pods map[types.UID]observed.Pod
}

func newKnown() known { return known{pods: map[types.UID]observed.Pod{}} }

func (k *known) put(p observed.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods[p.UID] = p
}

func (k *known) drop(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, uid)
}

// name returns a pod's namespace and name, or "" if it is not known.
func (k *known) name(uid types.UID) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pods[uid]; p.Name != "" {
		return p.Namespace + "/" + p.Name
	}
	return ""
}

func (k *known) all() []observed.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.SortedFunc(maps.Values(k.pods), func(a, b observed.Pod) int { return cmp.Compare(a.UID, b.UID) })
}

// count returns the number of pods with a running sandbox, and of containers
// by state.
func (k *known) count() (pods int, containers map[observed.State]int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	containers = map[observed.State]int{}
	for _, p := range k.pods {
		for _, c := range p.Containers {
			containers[c.State]++
		}
		if slices.ContainsFunc(p.Sandboxes, func(s observed.Sandbox) bool { return s.State == observed.Running }) {
			pods++
		}
	}
	return pods, containers
}
