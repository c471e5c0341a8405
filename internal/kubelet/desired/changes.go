package desired

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// changes are what one delivery changed in one source.
type changes struct {
	source *source
	first  bool // it is the first full set of the source
	added  Op   // what is said of new pods: OpAdd or OpRestore
	byOp   [OpSet][]placed
}

// A placed pod knows where it stands in the set of its source.
type placed struct {
	order int
	pod   *corev1.Pod
}

func (c *changes) note(op Op, e *entry) {
	c.byOp[op] = append(c.byOp[op], placed{e.order, e.stored})
}

func (c *changes) has(ops ...Op) bool {
	return slices.ContainsFunc(ops, func(op Op) bool { return len(c.byOp[op]) > 0 })
}

// append appends the updates of these operations. Pods come in the order of
// their set, and those that are gone by their names.
func (c *changes) append(updates []Update, ops ...Op) []Update {
	announce := c.first && !c.has(OpAdd, OpUpdate, OpDelete)
	for _, op := range ops {
		if of := c.byOp[op]; len(of) > 0 {
			updates = append(updates, Update{op, c.source.name, sorted(of, op == OpRemove)})
		} else if op == OpAdd && announce {
			updates = append(updates, Update{Op: op, Source: c.source.name})
		}
	}
	return updates
}

func sorted(of []placed, names bool) []*corev1.Pod {
	compare := func(a, b placed) int { return cmp.Compare(a.order, b.order) }
	if names {
		compare = func(a, b placed) int { return byName(a.pod, b.pod) }
	}
	if !slices.IsSortedFunc(of, compare) {
		slices.SortStableFunc(of, compare)
	}
	pods := make([]*corev1.Pod, len(of))
	for i, p := range of {
		pods[i] = p.pod
	}
	return pods
}

func byName(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}
