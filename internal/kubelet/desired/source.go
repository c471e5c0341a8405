package desired

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// A source is what one source said last. Its indexes are kept so that a change
// costs what changed: nothing walks over all pods but the taking of a full set.
type source struct {
	name   string
	static bool // its pods are static pods, of which one of a name runs on the node
	seen   bool // it has delivered a full set

	entries map[types.UID]*entry
	names   map[types.NamespacedName]*entry // the first of a name, linked to the others
	shared  map[types.NamespacedName]bool   // names that more than one entry has
	waiting map[types.NamespacedName]bool   // names whose first entry gives way to another source
	twins   []twin                          // pods whose UID an earlier one of their set has

	last  []*entry // as the last full set had them, to find them again quickly; some may be gone
	next  int      // order of the next new entry
	round int      // counts the deliveries
}

// An entry is a pod of a source.
type entry struct {
	pod      *corev1.Pod // as delivered; nil once it is gone
	stored   *corev1.Pod // as handed out; nil while it gives way to another
	place    string
	order    int    // in the set
	round    int    // of the last delivery that had it
	fresh    bool   // pod was delivered and not compared with stored
	restored bool   // the source has not spoken of it itself
	next     *entry // of the same name, by order
}

// A twin is a pod that is left out, as an earlier one of its set has its UID.
type twin struct {
	pod   *corev1.Pod
	place string
}

func newSource(name string) *source {
	return &source{
		name:    name,
		static:  name != staticpod.SourceAPI,
		entries: map[types.UID]*entry{},
		names:   map[types.NamespacedName]*entry{},
		shared:  map[types.NamespacedName]bool{},
		waiting: map[types.NamespacedName]bool{},
	}
}

// where returns where a person finds a pod of the source.
func (s *source) where(e *entry) string {
	if e.place == "" {
		return fmt.Sprintf("UID %s (source %q)", e.pod.UID, s.name)
	}
	return fmt.Sprintf("%s (source %q)", e.place, s.name)
}

// find returns the entry of a pod, or nil. i is its order in a full set: sets
// seldom differ much from the last one.
func (s *source) find(i int, pod *corev1.Pod) *entry {
	if i < len(s.last) {
		if e := s.last[i]; e.pod != nil && (e.pod == pod || e.pod.UID == pod.UID) {
			return e
		}
	}
	return s.entries[pod.UID]
}

// remember keeps the place of an entry in a full set, for find.
func (s *source) remember(e *entry) {
	if e.order < len(s.last) {
		s.last[e.order] = e
	} else {
		s.last = append(s.last, e)
	}
}

// put adds a pod that has no entry.
func (s *source) put(pod *corev1.Pod, order int) *entry {
	e := &entry{pod: pod, order: order, fresh: true}
	s.entries[pod.UID] = e
	s.link(e)
	return e
}

// drop takes an entry away. It stays linked to nothing.
func (s *source) drop(e *entry) {
	delete(s.entries, e.pod.UID)
	s.unlink(e)
	e.pod = nil
}

// link makes an entry known under its name, by its order.
func (s *source) link(e *entry) {
	name := nameOf(e.pod)
	first := s.names[name]
	if first == nil || e.order < first.order {
		e.next = first
		s.names[name] = e
	} else {
		before := first
		for before.next != nil && before.next.order <= e.order {
			before = before.next
		}
		before.next, e.next = e, before.next
	}
	if first != nil {
		s.shared[name] = true
	}
}

func (s *source) unlink(e *entry) {
	name := nameOf(e.pod)
	first := s.names[name]
	if first == e {
		first = e.next
	} else {
		before := first
		for before.next != e {
			before = before.next
		}
		before.next = e.next
	}
	e.next = nil
	if first == nil {
		delete(s.names, name)
	} else {
		s.names[name] = first
	}
	if first == nil || first.next == nil {
		delete(s.shared, name)
	}
}

// reorder links the entries of a name anew, after their order has changed.
func (s *source) reorder(name types.NamespacedName) {
	var all []*entry
	for e := s.names[name]; e != nil; e = e.next {
		all = append(all, e)
	}
	delete(s.names, name)
	for _, e := range all {
		e.next = nil
		s.link(e)
	}
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
