package desired

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A model is the merge as somebody would write it who has time: it keeps lists,
// and works everything out anew for each delivery.
type model struct {
	lists    map[string][]*corev1.Pod // as delivered, in order
	restored map[*corev1.Pod]bool
	seen     map[string]bool
	force    map[string][]*corev1.Pod // of lists: those in force
}

func newModel() *model {
	return &model{map[string][]*corev1.Pod{}, map[*corev1.Pod]bool{}, map[string]bool{}, map[string][]*corev1.Pod{}}
}

// merge returns what is to be said, as show writes it.
func (m *model) merge(d Delivery) []string {
	first, added := false, "ADD"
	switch d.Kind {
	case Full:
		m.lists[d.Source] = slices.Clone(d.Pods)
		for _, p := range m.lists[d.Source] {
			delete(m.restored, p)
		}
		first, m.seen[d.Source] = !m.seen[d.Source], true
	case Delta:
		for _, pod := range d.Pods {
			m.put(d.Source, pod)
		}
		for _, uid := range d.Gone {
			if !slices.ContainsFunc(d.Pods, func(p *corev1.Pod) bool { return p.UID == uid }) {
				m.drop(d.Source, func(p *corev1.Pod) bool { return p.UID == uid })
			}
		}
	case Restored:
		added = "RESTORE"
		if !m.seen[d.Source] {
			for _, pod := range d.Pods {
				if !slices.ContainsFunc(m.lists[d.Source], func(p *corev1.Pod) bool { return p.UID == pod.UID || nameOf(p) == nameOf(pod) }) {
					m.lists[d.Source] = append(m.lists[d.Source], pod)
					m.restored[pod] = true
				}
			}
		}
	}
	said := m.diff(d.Source, first, added)
	for _, other := range slices.Sorted(maps.Keys(m.lists)) {
		if other != d.Source {
			said = append(said, m.diff(other, false, "ADD")...)
		}
	}
	return said
}

func (m *model) drop(source string, which func(*corev1.Pod) bool) {
	m.lists[source] = slices.DeleteFunc(slices.Clone(m.lists[source]), which)
}

func (m *model) put(source string, pod *corev1.Pod) {
	delete(m.restored, pod)
	list := m.lists[source]
	i := slices.IndexFunc(list, func(p *corev1.Pod) bool { return p.UID == pod.UID })
	if i >= 0 && nameOf(list[i]) == nameOf(pod) {
		m.drop(source, func(p *corev1.Pod) bool { return p.UID == pod.UID })
		m.lists[source] = slices.Insert(m.lists[source], i, pod) // the first of its UID: none before it went
		return
	}
	m.drop(source, func(p *corev1.Pod) bool { return p.UID == pod.UID || m.restored[p] && nameOf(p) == nameOf(pod) })
	m.lists[source] = append(m.lists[source], pod)
}

// diff works out which pods of a source are in force, and what is new of that.
func (m *model) diff(source string, first bool, added string) []string {
	taken := map[types.NamespacedName]bool{}
	if source != "api" {
		for other, pods := range m.force {
			if other != "api" && other != source {
				for _, p := range pods {
					taken[nameOf(p)] = true
				}
			}
		}
	}
	var now []*corev1.Pod
	names, uids := map[types.NamespacedName]bool{}, map[types.UID]bool{}
	for _, p := range m.lists[source] {
		if uids[p.UID] || names[nameOf(p)] {
			uids[p.UID] = true
			continue
		}
		uids[p.UID], names[nameOf(p)] = true, true
		if !taken[nameOf(p)] {
			now = append(now, p)
		}
	}
	byOp := map[string][]*corev1.Pod{}
	known := func(in []*corev1.Pod, p *corev1.Pod) *corev1.Pod {
		i := slices.IndexFunc(in, func(o *corev1.Pod) bool { return o.UID == p.UID && nameOf(o) == nameOf(p) })
		if i < 0 {
			return nil
		}
		return in[i]
	}
	for _, p := range now {
		was := known(m.force[source], p)
		switch {
		case was == nil:
			byOp[added] = append(byOp[added], p)
		case was.Spec.Containers[0].Image == p.Spec.Containers[0].Image && was.DeletionTimestamp.Equal(p.DeletionTimestamp):
			if was.Status.Phase != p.Status.Phase {
				byOp["RECONCILE"] = append(byOp["RECONCILE"], p)
			}
		case p.DeletionTimestamp != nil:
			byOp["DELETE"] = append(byOp["DELETE"], p)
		default:
			byOp["UPDATE"] = append(byOp["UPDATE"], p)
		}
	}
	for _, p := range m.force[source] {
		if known(now, p) == nil {
			byOp["REMOVE"] = append(byOp["REMOVE"], p)
		}
	}
	slices.SortFunc(byOp["REMOVE"], byName)
	m.force[source] = now
	var updates []Update
	announce := first && len(byOp["ADD"])+len(byOp["UPDATE"])+len(byOp["DELETE"]) == 0
	for op := range OpSet {
		if pods := byOp[op.String()]; len(pods) > 0 || op == OpAdd && announce {
			updates = append(updates, Update{op, source, pods})
		}
	}
	return show(updates)
}

// full is the set of a source as one delivery.
func (m *model) full(source string) Delivery {
	return Delivery{Source: source, Pods: m.lists[source]}
}

// TestModel merges random deliveries of three sources, and compares what is
// said and what is wanted with the model. Beside them a twin is given full sets
// in the place of deltas: it must say the same.
func TestModel(t *testing.T) {
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		p, twin, m := New("file", "http", "api"), New("file", "http", "api"), newModel()
		for step := range 25 {
			d := randomDelivery(rnd, m)
			want := m.merge(d)
			if diff := gocmp.Diff(show(p.Merge(d, now)), want); diff != "" {
				t.Fatalf("seed %d, step %d, %s (-got +want):\n%s", seed, step, tell(d), diff)
			}
			if d.Kind == Delta && m.seen[d.Source] {
				d = m.full(d.Source)
			}
			if diff := gocmp.Diff(show(twin.Merge(d, now)), want); diff != "" {
				t.Fatalf("seed %d, step %d, full set %s (-got +want):\n%s", seed, step, tell(d), diff)
			}
			compareAll(t, fmt.Sprintf("seed %d, step %d", seed, step), p, twin, m)
		}
	}
}

func compareAll(t *testing.T, when string, p, twin *Pods, m *model) {
	t.Helper()
	var want []*corev1.Pod
	for _, pods := range m.force {
		want = append(want, pods...)
	}
	slices.SortFunc(want, byName)
	states := func(pods []*corev1.Pod) (all []string) {
		for _, p := range pods {
			all = append(all, state(p))
		}
		slices.Sort(all)
		return all
	}
	if diff := gocmp.Diff(states(p.All()), states(want)); diff != "" {
		t.Fatalf("%s: wanted pods (-got +want):\n%s", when, diff)
	}
	var got, other []string
	for _, f := range p.Faults() {
		got = append(got, f.Message)
	}
	for _, f := range twin.Faults() {
		other = append(other, f.Message)
	}
	// A UID twice is known only from a set; the model's list has it no more.
	if diff := gocmp.Diff(got, other); diff != "" {
		t.Fatalf("%s: faults after deltas and after sets differ:\n%s", when, diff)
	}
	left := 0
	for source, list := range m.lists {
		left += len(list) - len(m.force[source])
	}
	for _, a := range m.force["api"] {
		for source, pods := range m.force {
			if source != "api" && slices.ContainsFunc(pods, func(s *corev1.Pod) bool { return nameOf(s) == nameOf(a) }) {
				left++
			}
		}
	}
	if len(got) != left {
		t.Fatalf("%s: %d faults, want %d:\n%q", when, len(got), left, got)
	}
}

func state(p *corev1.Pod) string {
	return fmt.Sprint(p.Namespace, p.Name, p.UID, p.Spec.Containers[0].Image, p.Status.Phase, p.DeletionTimestamp)
}

func tell(d Delivery) string {
	s := fmt.Sprintf("%s kind %d gone %v:", d.Source, d.Kind, d.Gone)
	for _, p := range d.Pods {
		s += " " + state(p)
	}
	return s
}

// randomDelivery makes one of few names and UIDs, so that they meet, partly of
// the objects that the source delivered before.
func randomDelivery(rnd *rand.Rand, m *model) Delivery {
	d := Delivery{Source: []string{"file", "http", "api"}[rnd.IntN(3)], Kind: []Kind{Full, Delta, Delta, Restored}[rnd.IntN(4)]}
	for range rnd.IntN(5) {
		if list := m.lists[d.Source]; len(list) > 0 && rnd.IntN(2) == 0 {
			d.Pods = append(d.Pods, list[rnd.IntN(len(list))])
			continue
		}
		p := pod(fmt.Sprintf("%c/%d", 'a'+rune(rnd.IntN(3)), rnd.IntN(5)), image(fmt.Sprint(rnd.IntN(2))), irrelevant)
		p.ResourceVersion, p.Generation = fmt.Sprint(rnd.Uint64()), 0
		if rnd.IntN(3) == 0 {
			running(p)
		}
		if rnd.IntN(5) == 0 {
			deleted(p)
		}
		d.Pods = append(d.Pods, p)
	}
	if d.Kind == Delta { // it names a UID once
		d.Pods = slices.CompactFunc(slices.SortedStableFunc(slices.Values(d.Pods), func(a, b *corev1.Pod) int { return cmp.Compare(a.UID, b.UID) }),
			func(a, b *corev1.Pod) bool { return a.UID == b.UID })
		rnd.Shuffle(len(d.Pods), func(i, j int) { d.Pods[i], d.Pods[j] = d.Pods[j], d.Pods[i] })
		for range rnd.IntN(3) {
			d.Gone = append(d.Gone, types.UID(fmt.Sprint(rnd.IntN(5))))
		}
	}
	return d
}
