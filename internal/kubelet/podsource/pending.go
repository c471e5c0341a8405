package podsource

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// pending are changes that wait for their receiver. However many come while it
// is busy, it gets one delivery, after which it knows what whole sets would have
// told it: of a pod that changed twice the last, of one that came and went
// nothing.
//
// One goroutine changes it, one takes from it.
type pending struct {
	wake wake.Bell // something waits

	// mu guards what is below.
	mu sync.Mutex
	// told are the pods that the receiver has.
	told map[types.UID]bool
	// full is set while a whole set waits: pods is all of it.
	full bool
	// pods are new and changed ones; gone, none of them in pods, is a part of told.
	pods map[types.UID]*corev1.Pod
	gone map[types.UID]bool
}

func newPending() *pending {
	p := &pending{wake: wake.NewBell(), told: map[types.UID]bool{}}
	p.clear()
	return p
}

func (p *pending) clear() {
	p.full, p.pods, p.gone = false, map[types.UID]*corev1.Pod{}, map[types.UID]bool{}
}

// replace says that these are all pods.
func (p *pending) replace(pods []*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	p.full = true
	for _, pod := range pods {
		p.pods[pod.UID] = pod
	}
	p.wake.Ring()
}

// set says that a pod is there now, or has changed.
func (p *pending) set(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.gone, pod.UID)
	p.pods[pod.UID] = pod
	p.wake.Ring()
}

// remove says that a pod is gone.
func (p *pending) remove(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, uid)
	if !p.full && p.told[uid] {
		p.gone[uid] = true
	}
	p.wake.Ring()
}

// take returns what waits, if anything does: it may have vanished again.
func (p *pending) take(source string) (d desired.Delivery, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.full && len(p.pods)+len(p.gone) == 0 {
		return d, false
	}
	d = desired.Delivery{Source: source, Pods: slices.SortedFunc(maps.Values(p.pods), byName)}
	if p.full {
		p.told = make(map[types.UID]bool, len(p.pods))
	} else {
		d.Kind, d.Gone = desired.Delta, slices.Sorted(maps.Keys(p.gone))
	}
	for uid := range p.pods {
		p.told[uid] = true
	}
	for uid := range p.gone {
		delete(p.told, uid)
	}
	p.clear()
	return d, true
}

// count returns how many pods there are, told or not.
func (p *pending) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full {
		return len(p.pods)
	}
	n := len(p.told) - len(p.gone)
	for uid := range p.pods {
		if !p.told[uid] {
			n++
		}
	}
	return n
}

func byName(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
