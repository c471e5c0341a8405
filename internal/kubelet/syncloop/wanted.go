package syncloop

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// keep has a pod among the wanted ones, in the place of an older version.
func (l *Loop) keep(p *v1.Pod) {
	l.pods[p.UID] = p
	l.touched = append(l.touched, p)
	if staticpod.IsStatic(p) {
		l.statics++
		l.static[fullName(p)] = p
	}
}

// drop takes a pod from the wanted ones.
func (l *Loop) drop(p *v1.Pod) {
	delete(l.pods, p.UID)
	l.touched = append(l.touched, p)
	if s := l.static[fullName(p)]; s != nil && s.UID == p.UID {
		l.statics++
		delete(l.static, fullName(p))
	}
}

// publish lets readers see the pods.
func (l *Loop) publish() {
	faults := l.faults()
	defer l.cfg.Published()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.pods, l.mu.faults = published(l.mu.pods, l.pods, l.touched), faults
	l.mu.rejected, l.mu.seen = maps.Clone(l.rejected), l.seen.Has(staticpod.SourceAPI)
	l.touched = nil
}

// published returns the pods that are wanted now, ordered by namespace and name,
// given those before and what was kept or dropped since. The old list stays as it
// is: readers may have it. Few changes cost a copy of the list, not a sort.
func published(before []*v1.Pod, wanted map[types.UID]*v1.Pod, touched []*v1.Pod) []*v1.Pod {
	if len(touched) == 0 {
		return before
	}
	if len(touched) > len(before)/8 {
		return slices.SortedFunc(maps.Values(wanted), byName)
	}
	now := slices.Clone(before)
	for _, p := range touched {
		i, found := slices.BinarySearchFunc(now, p, byName)
		switch want := wanted[p.UID]; {
		case want == nil || byName(want, p) != 0: // gone, or here under another name
			if found {
				now = slices.Delete(now, i, i+1)
			}
		case found:
			now[i] = want
		default:
			now = slices.Insert(now, i, want)
		}
	}
	return now
}

func byName(a, b *v1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}
