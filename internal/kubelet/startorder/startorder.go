// Package startorder says which static pods wait for others, by their annotation
// holdfast.dev/after, and in which order they stop.
//
// A pod starts once each pod that it names is Ready, in the API's meaning of
// that condition. The order is one of starts: a pod that runs never stops
// because another is not Ready. Where several stop at once, a pod stops before
// those that it names.
//
// Everything here is a pure function.
package startorder

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// Annotation names the pods to wait for, with commas between them: by the name
// in their manifest, and with namespace/ before it if that is another.
const Annotation = "holdfast.dev/after"

// after returns the full names, namespace/name as on the node, of the pods
// that a static pod waits for, in the order in which they are written.
func after(pod *v1.Pod) []string {
	if !staticpod.IsStatic(pod) {
		return nil
	}
	var names []string
	for word := range strings.SplitSeq(pod.Annotations[Annotation], ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		namespace, name, found := strings.Cut(word, "/")
		if !found {
			namespace, name = pod.Namespace, word
		}
		names = append(names, namespace+"/"+staticpod.Name(name, pod.Spec.NodeName))
	}
	return names
}

// Ordered reports whether a pod waits for any.
func Ordered(pod *v1.Pod) bool { return len(after(pod)) > 0 }

// Names reports whether pod waits for other, or would if it did not run.
func Names(pod, other *v1.Pod) bool { return slices.Contains(after(pod), fullName(other)) }

// A Wait is why a pod may not start yet.
type Wait struct {
	Why   string // "": it may
	Wrong bool   // only another manifest ends it
}

// Waits returns why a pod that does not run may not start yet. static are the
// static pods by namespace/name, and status returns what is known of one.
func Waits(pod *v1.Pod, static map[string]*v1.Pod, status func(types.UID) (v1.PodStatus, bool)) Wait {
	names := after(pod)
	if len(names) == 0 {
		return Wait{}
	}
	if circle := circle(pod, static); circle != nil {
		return Wait{fmt.Sprintf("waits for itself: %s; take %s out of one of them", strings.Join(written(pod, circle), " after "), Annotation), true}
	}
	var why []string
	wrong := false
	for i, short := range written(pod, names) {
		other := static[names[i]]
		if other == nil {
			why = append(why, fmt.Sprintf("waits for %s, and no manifest has a pod of that name", short))
			wrong = true
			continue
		}
		s, _ := status(other.UID)
		if reason := notReady(&s); reason != "" {
			why = append(why, fmt.Sprintf("waits for %s, which is not ready: %s", short, reason))
		}
	}
	return Wait{strings.Join(why, "; "), wrong}
}

// Check returns what is wrong with a pod's annotation as its manifest has it,
// or "". namespace is the pod's own.
func Check(pod *v1.Pod, namespace string) string {
	for word := range strings.SplitSeq(pod.Annotations[Annotation], ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		in, name, found := strings.Cut(word, "/")
		if !found {
			in, name = namespace, word
		}
		switch {
		case len(validation.IsDNS1123Label(in)) > 0, len(validation.IsDNS1123Subdomain(name)) > 0:
			return fmt.Sprintf("%q is no pod: write its name, or namespace/name", word)
		case in == namespace && name == pod.Name:
			return "the pod would wait for itself"
		}
	}
	return ""
}

// written returns names as manifests have them, with their namespaces.
func written(pod *v1.Pod, names []string) []string {
	suffix := staticpod.Name("", pod.Spec.NodeName)
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = strings.TrimSuffix(name, suffix)
	}
	return short
}

// notReady returns why a pod is not Ready, or "".
func notReady(s *v1.PodStatus) string {
	if s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed {
		return "it has ended (" + string(s.Phase) + "), and a pod that has ended is never ready"
	}
	for _, c := range s.Conditions {
		if c.Type != v1.PodReady {
			continue
		}
		if c.Status == v1.ConditionTrue {
			return ""
		}
		return cmp.Or(c.Message, c.Reason, "it has not said why")
	}
	return "it has not started"
}

// circle returns the way from a pod back to itself, or nil. A pod that only
// waits for one in a circle is in none.
func circle(pod *v1.Pod, static map[string]*v1.Pod) []string {
	start := fullName(pod)
	seen := map[string]bool{}
	var walk func(at *v1.Pod) []string
	walk = func(at *v1.Pod) []string {
		for _, name := range after(at) {
			if name == start {
				return []string{fullName(at), start}
			}
			if next := static[name]; next != nil && !seen[name] {
				seen[name] = true
				if way := walk(next); way != nil {
					return append([]string{fullName(at)}, way...)
				}
			}
		}
		return nil
	}
	return walk(pod)
}

// Stops returns pods in the groups in which they stop, one after the other:
// those of lower priority first, as upstream does, and before anything else
// each pod before those that it names. Of pods in a circle all stop at once.
func Stops(pods []*v1.Pod) [][]*v1.Pod {
	var groups [][]*v1.Pod
	for _, w := range Waves(pods, func(priority int32) int { return int(priority) }) {
		groups = append(groups, w.Pods)
	}
	return groups
}

// A Wave is pods that stop at once.
type Wave struct {
	Class int // the highest of the pods and of those that wait for them
	Pods  []*v1.Pod
}

// Waves returns pods in the order of Stops, where class says which priorities
// are one: those of a lower class stop first.
func Waves(pods []*v1.Pod, class func(priority int32) int) []Wave {
	byName := map[string]*v1.Pod{}
	for _, p := range pods {
		byName[fullName(p)] = p
	}
	type rank struct {
		class int // the highest of the pod and those that wait for it
		depth int // the longest way from a pod that waits for it
	}
	ranks := map[string]rank{}
	for _, p := range pods {
		ranks[fullName(p)] = rank{class: class(priority(p))}
	}
	// As many rounds as there are pods settle every chain; a circle would go on.
	for range pods {
		settled := true
		for _, p := range pods {
			mine := ranks[fullName(p)]
			if circle(p, byName) != nil {
				continue
			}
			for _, name := range after(p) {
				r, known := ranks[name]
				if !known {
					continue
				}
				if next := (rank{max(r.class, mine.class), max(r.depth, mine.depth+1)}); next != r {
					ranks[name], settled = next, false
				}
			}
		}
		if settled {
			break
		}
	}
	sorted := slices.Clone(pods)
	compare := func(a, b *v1.Pod) int {
		x, y := ranks[fullName(a)], ranks[fullName(b)]
		return cmp.Or(cmp.Compare(x.class, y.class), cmp.Compare(x.depth, y.depth))
	}
	slices.SortStableFunc(sorted, compare)
	var waves []Wave
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && compare(sorted[0], sorted[n]) == 0 {
			n++
		}
		waves = append(waves, Wave{ranks[fullName(sorted[0])].class, sorted[:n:n]})
		sorted = sorted[n:]
	}
	return waves
}

func priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func fullName(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }
