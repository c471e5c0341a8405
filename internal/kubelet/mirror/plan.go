package mirror

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// A picture is what is wanted and what there is.
type picture struct {
	static  []*v1.Pod // pods that a source has
	ending  []*v1.Pod // pods that no source has any more and that have not ended
	mirrors []*v1.Pod // what the API has
	prune   bool      // all sources were seen: a mirror of nothing goes
}

// An action is what is to be done for one name. Exactly one of create and
// remove is set.
type action struct {
	name   string  // namespace/name
	create *v1.Pod // the static pod
	remove *v1.Pod // the mirror
}

// key tells whether an action is the same as an earlier one.
func (a *action) key() string {
	if a.create != nil {
		return "create " + a.create.Annotations[staticpod.HashAnnotation]
	}
	return "remove " + string(a.remove.UID)
}

// plan returns the next action for each name that needs one, by name. A mirror
// is removed when it is being deleted, when it is of another version than the
// pod, or when there is no pod; while an old version ends, its mirror stays, so
// that everybody sees that it still runs.
func plan(p *picture) []action {
	wanted, ending, mirrors := byName(p.static), byName(p.ending), byName(p.mirrors)
	var actions []action
	for name, pod := range wanted {
		m := mirrors[name]
		switch old := ending[name]; {
		case m == nil && old == nil:
			actions = append(actions, action{name: name, create: pod})
		case m == nil || m.DeletionTimestamp == nil && staticpod.Mirrors(m, pod):
		case old != nil && m.DeletionTimestamp == nil && staticpod.Mirrors(m, old):
		default:
			actions = append(actions, action{name: name, remove: m})
		}
	}
	for name, m := range mirrors {
		if wanted[name] == nil && ending[name] == nil && p.prune {
			actions = append(actions, action{name: name, remove: m})
		}
	}
	slices.SortFunc(actions, func(a, b action) int { return cmp.Compare(a.name, b.name) })
	return actions
}

func byName(pods []*v1.Pod) map[string]*v1.Pod {
	m := make(map[string]*v1.Pod, len(pods))
	for _, p := range pods {
		m[fullName(p)] = p
	}
	return m
}

func fullName(p *v1.Pod) string { return p.Namespace + "/" + p.Name }
