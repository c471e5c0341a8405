package desired

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// A Fault is a pod that is left out, or clashes with another.
type Fault struct {
	Source  string
	Pod     *corev1.Pod
	Message string // names the pod, and both places where it stands
}

// Faults returns the pods that are left out or clash, now, by source and name.
// It costs nothing where there are none.
func (p *Pods) Faults() []Fault {
	var faults []Fault
	for _, s := range p.ordered {
		of := s.faults(p)
		if !s.static {
			of = append(of, p.clashFaults(s)...)
		}
		slices.SortFunc(of, func(a, b Fault) int { return byName(a.Pod, b.Pod) })
		faults = append(faults, of...)
	}
	return faults
}

// faults returns the pods of a source that give way to others.
func (s *source) faults(p *Pods) []Fault {
	var faults []Fault
	for name := range s.shared {
		first := s.names[name]
		for e := first.next; e != nil; e = e.next {
			faults = append(faults, Fault{s.name, e.pod, fmt.Sprintf("duplicate pod name %q: %s is left out, as %s comes first; give one of them another name",
				name, s.where(e), s.where(first))})
		}
	}
	for name := range s.waiting {
		e, other := s.names[name], p.holders[name]
		if other == nil {
			faults = append(faults, Fault{s.name, e.pod, fmt.Sprintf("duplicate pod name %q: %s waits until source %q has answered, whose pod of that name runs",
				name, s.where(e), p.heirs[name].name)})
			continue
		}
		faults = append(faults, Fault{s.name, e.pod, fmt.Sprintf("duplicate pod name %q: %s is left out, as %s is in force; give one of them another name",
			name, s.where(e), other.where(other.names[name]))})
	}
	for _, t := range s.twins {
		e := s.entries[t.pod.UID]
		faults = append(faults, Fault{s.name, t.pod, fmt.Sprintf("duplicate pod UID %q: %s is left out, as %s comes first; leave metadata.uid out of one of them",
			t.pod.UID, s.where(&entry{pod: t.pod, place: t.place}), s.where(e))})
	}
	return faults
}

// clashFaults returns the pods of the API that run beside a static one of the
// same name.
func (p *Pods) clashFaults(api *source) []Fault {
	var faults []Fault
	for name := range p.clashes {
		e, other := api.names[name], p.holders[name]
		faults = append(faults, Fault{api.name, e.stored, fmt.Sprintf("duplicate pod name %q: %s runs beside %s, which the API does not show; give one of them another name",
			name, api.where(e), other.where(other.names[name]))})
	}
	return faults
}

// checkClash notes whether a name is that of a static pod and of a pod of the
// API that is not its mirror: a mirror is a pod of that name and another UID, too.
func (p *Pods) checkClash(name types.NamespacedName) {
	if len(p.holders) == 0 && len(p.clashes) == 0 {
		return
	}
	if p.holders[name] != nil {
		if api := p.sources[staticpod.SourceAPI]; api != nil {
			if e := api.names[name]; e != nil && e.stored != nil && !staticpod.IsMirror(e.stored) {
				p.clashes[name] = true
				return
			}
		}
	}
	delete(p.clashes, name)
}

func sourcesOf(m map[string]*source) []*source {
	var all []*source
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[name])
	}
	return all
}
