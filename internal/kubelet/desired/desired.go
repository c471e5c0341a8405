// Package desired holds the pods that this node should run: the full sets of
// all sources merged, and what changed as ordered updates. It is upstream's pod
// configuration in its incremental mode.
//
// Everything is a computation on memory: no clock, no I/O, no goroutine. A
// [Pods] has one owner and is not safe for concurrent use. A pod that it took or
// gave is never changed afterwards, by either side: a change is another object.
package desired

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// An Op is what an update says of its pods.
type Op int

// The operations, in the order in which the updates of one set come.
const (
	OpRemove    Op = iota // the pods are gone from their source: end them
	OpAdd                 // the pods are new
	OpUpdate              // the pods' spec, labels or annotations changed
	OpDelete              // the pods are marked for deletion: end them gracefully
	OpReconcile           // only the status that the API has changed
)

// String returns upstream's name of the operation.
func (o Op) String() string {
	switch o {
	case OpRemove:
		return "REMOVE"
	case OpAdd:
		return "ADD"
	case OpUpdate:
		return "UPDATE"
	case OpDelete:
		return "DELETE"
	case OpReconcile:
		return "RECONCILE"
	default:
		return fmt.Sprintf("Op(%d)", int(o))
	}
}

// An Update is one message to the sync loop. Its pods are read-only. An OpAdd
// without pods announces that an empty source was seen.
type Update struct {
	Op     Op
	Source string
	Pods   []*corev1.Pod
}

// A Fault is a pod that is left out, or clashes with another.
type Fault struct {
	Source  string
	Pod     *corev1.Pod
	Message string // names the pod, its source, and the source of the other
}

// Pods are the pods of all sources.
type Pods struct {
	sources map[string]*source
}

// A source is what one source said last.
type source struct {
	seen    bool
	set     []*corev1.Pod // as delivered
	pods    map[types.UID]*corev1.Pod
	names   map[types.NamespacedName]bool // of pods
	faults  []Fault
	dropped bool // set has a pod that gave way to another source's
}

// New returns the empty state of these sources.
func New(sources ...string) *Pods {
	p := &Pods{sources: map[string]*source{}}
	for _, s := range sources {
		p.sources[s] = &source{pods: map[types.UID]*corev1.Pod{}}
	}
	return p
}

// Merge takes what a source delivers and returns what changed. A source that
// was not given to New is added. now becomes the annotation config.seen of new
// pods.
//
// Updates of other sources follow where their pods had given way to one that
// this set has no more.
func (p *Pods) Merge(d Delivery, now time.Time) []Update {
	name := d.Source
	s, ok := p.sources[name]
	if !ok {
		s = &source{pods: map[types.UID]*corev1.Pod{}}
		p.sources[name] = s
	}
	s.set = d.Pods
	if d.Kind == Delta {
		s.set = s.with(d)
	}
	updates := p.merge(name, s, now)
	for _, other := range slices.Sorted(maps.Keys(p.sources)) {
		if o := p.sources[other]; o != s && o.dropped {
			updates = append(updates, p.merge(other, o, now)...)
		}
	}
	return updates
}

// with returns the set after a change.
func (s *source) with(d Delivery) []*corev1.Pod {
	changed := make(map[types.UID]bool, len(d.Pods)+len(d.Gone))
	for _, pod := range d.Pods {
		changed[pod.UID] = true
	}
	for _, uid := range d.Gone {
		changed[uid] = true
	}
	left := slices.DeleteFunc(slices.Clone(s.set), func(pod *corev1.Pod) bool { return changed[pod.UID] })
	return append(left, d.Pods...)
}

// merge computes the state of one source anew.
func (p *Pods) merge(name string, s *source, now time.Time) []Update {
	next := make(map[types.UID]*corev1.Pod, len(s.set))
	names := make(map[types.NamespacedName]bool, len(s.set))
	byOp := map[Op][]*corev1.Pod{}
	for _, pod := range p.admissible(name, s) {
		current, op, changed := s.take(name, pod, now)
		next[pod.UID] = current
		names[nameOf(current)] = true
		if changed {
			byOp[op] = append(byOp[op], current)
		}
	}
	for uid, pod := range s.pods {
		if _, ok := next[uid]; !ok {
			byOp[OpRemove] = append(byOp[OpRemove], pod)
		}
	}
	slices.SortFunc(byOp[OpRemove], byName)

	first := !s.seen
	s.seen, s.pods, s.names = true, next, names
	var updates []Update
	for op := OpRemove; op <= OpReconcile; op++ {
		announce := op == OpAdd && first && len(byOp[OpUpdate]) == 0 && len(byOp[OpDelete]) == 0
		if len(byOp[op]) > 0 || announce {
			updates = append(updates, Update{op, name, byOp[op]})
		}
	}
	return updates
}

// take compares a pod with what is stored of it, and returns what is to be
// stored and what to say of it.
func (s *source) take(name string, pod *corev1.Pod, now time.Time) (current *corev1.Pod, op Op, changed bool) {
	if stored, ok := s.pods[pod.UID]; ok {
		return change(stored, pod)
	}
	return adopt(pod, name, now), OpAdd, true
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

func byName(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// admissible returns the pods of a set that count, and records why others do
// not. Of two pods of one name in one set the first counts. Of two static pods
// of one name in two sources the one in force counts. A pod of the API counts
// beside a static one: the server keeps its names unique, so that only the
// mirror of the static pod suffers.
func (p *Pods) admissible(name string, s *source) []*corev1.Pod {
	s.faults, s.dropped = nil, false
	var good []*corev1.Pod
	names, uids := map[types.NamespacedName]bool{}, map[types.UID]bool{}
	for _, pod := range s.set {
		key := nameOf(pod)
		if names[key] || uids[pod.UID] {
			s.fault(name, pod, fmt.Sprintf("duplicate pod name %q from source %q: the first one of this source counts", key, name))
			continue
		}
		names[key], uids[pod.UID] = true, true
		if other := p.holder(name, key); other != "" && name != staticpod.SourceAPI {
			s.fault(name, pod, fmt.Sprintf("duplicate pod name %q from source %q: the one from source %q is in force", key, name, other))
			s.dropped = true
			continue
		}
		good = append(good, pod)
	}
	return good
}

func (s *source) fault(name string, pod *corev1.Pod, message string) {
	s.faults = append(s.faults, Fault{Source: name, Pod: pod, Message: message})
}

// holder returns another source of static pods in which the name is in force,
// or "".
func (p *Pods) holder(name string, key types.NamespacedName) string {
	for _, other := range slices.Sorted(maps.Keys(p.sources)) {
		if other != name && other != staticpod.SourceAPI && p.sources[other].names[key] {
			return other
		}
	}
	return ""
}

// adopt returns the stored form of a new pod.
func adopt(pod *corev1.Pod, source string, now time.Time) *corev1.Pod {
	p := *pod // what lies below is shared and never changed
	p.Annotations = maps.Clone(pod.Annotations)
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[staticpod.SourceAnnotation] = source
	p.Annotations[staticpod.SeenAnnotation] = now.Format(staticpod.TimeFormat)
	return &p
}

// local are the annotations that the node sets and no source knows.
var local = []string{staticpod.SourceAnnotation, staticpod.MirrorAnnotation, staticpod.SeenAnnotation}

func isLocal(name, _ string) bool { return slices.Contains(local, name) }

// change does so for a pod that is known. Of the metadata only labels, annotations and the deletion count.
func change(stored, pod *corev1.Pod) (current *corev1.Pod, op Op, changed bool) {
	if stored.ResourceVersion != "" && stored.ResourceVersion == pod.ResourceVersion {
		return stored, 0, false
	}
	differs := !sameButStatus(stored, pod)
	if !differs && apiequality.Semantic.DeepEqual(stored.Status, pod.Status) {
		return stored, 0, false
	}
	p := *pod
	p.Annotations = maps.Clone(pod.Annotations)
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	for _, name := range local {
		if v, ok := stored.Annotations[name]; ok {
			p.Annotations[name] = v
		}
	}
	switch {
	case !differs:
		return &p, OpReconcile, true
	case pod.DeletionTimestamp != nil:
		return &p, OpDelete, true
	default:
		return &p, OpUpdate, true
	}
}

func sameButStatus(a, b *corev1.Pod) bool {
	return a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		apiequality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(foreign(a.Annotations), foreign(b.Annotations)) &&
		apiequality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// foreign returns the annotations that come from the source.
func foreign(annotations map[string]string) map[string]string {
	m := maps.Clone(annotations)
	maps.DeleteFunc(m, isLocal)
	return m
}

// SeenAllSources reports whether every source has delivered a set and its
// updates have been taken: seen holds the sources of the updates that were.
func (p *Pods) SeenAllSources(seen sets.Set[string]) bool {
	for name, s := range p.sources {
		if !s.seen || !seen.Has(name) {
			return false
		}
	}
	return true
}

// Faults returns the pods that are left out or clash, now, by source.
func (p *Pods) Faults() []Fault {
	var faults []Fault
	for _, name := range slices.Sorted(maps.Keys(p.sources)) {
		faults = append(faults, p.sources[name].faults...)
		if name == staticpod.SourceAPI {
			faults = append(faults, p.clashes(name)...)
		}
	}
	return faults
}

// clashes returns the pods of the API that have the name of a static pod and
// are not its mirror. A mirror is a pod of that name and another UID, too.
func (p *Pods) clashes(api string) []Fault {
	var faults []Fault
	for _, pod := range p.sources[api].pods {
		if other := p.holder(api, nameOf(pod)); other != "" && !staticpod.IsMirror(pod) {
			faults = append(faults, Fault{api, pod, fmt.Sprintf("duplicate pod name %q from source %q: source %q has it too; both run", nameOf(pod), api, other)})
		}
	}
	slices.SortFunc(faults, func(a, b Fault) int { return byName(a.Pod, b.Pod) })
	return faults
}

// All returns every pod that is wanted, ordered by namespace and name.
func (p *Pods) All() []*corev1.Pod {
	var all []*corev1.Pod
	for _, s := range p.sources {
		all = slices.AppendSeq(all, maps.Values(s.pods))
	}
	slices.SortFunc(all, byName)
	return all
}
