package eviction

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// A history is what is remembered from one look to the next. Thresholds are
// named by their place in the policy.
type history struct {
	since map[int]time.Time                  // since when a threshold has been crossed
	acted map[int]bool                       // something was to be done: it lasts until its minimum is reclaimed
	last  map[v1.NodeConditionType]time.Time // when a condition was last due
}

// A verdict is what follows from one look.
type verdict struct {
	conditions []v1.NodeConditionType // that the node has, in the order of their names
	act        []int                  // thresholds about which something is to be done, the most pressing first
}

// decide says what follows from what was seen at a moment.
func (p *Policy) decide(h history, seen observations, now time.Time) (history, verdict) {
	next := history{since: map[int]time.Time{}, acted: map[int]bool{}, last: map[v1.NodeConditionType]time.Time{}}
	maps.Copy(next.last, h.last)
	var v verdict
	for i, t := range p.thresholds {
		if !t.crossed(seen, h.acted[i]) {
			continue
		}
		next.last[t.signal.condition()] = now
		since, before := h.since[i]
		if !before {
			since = now
		}
		next.since[i] = since
		if now.Sub(since) >= t.grace {
			next.acted[i] = true
			v.act = append(v.act, i)
		}
	}
	for condition, at := range next.last {
		if now.Sub(at) < p.transitionPeriod {
			v.conditions = append(v.conditions, condition)
		} else {
			delete(next.last, condition)
		}
	}
	slices.Sort(v.conditions)
	return next, v
}

// crossed reports whether less is left than the threshold says. With reclaim
// that is to be more by the minimum to reclaim.
func (t threshold) crossed(seen observations, reclaim bool) bool {
	return t.missing(seen, reclaim) > 0
}

// missing returns how much has to come free for the threshold not to be
// crossed; 0 if it is not, or if nothing is known.
func (t threshold) missing(seen observations, reclaim bool) int64 {
	o, known := seen[t.signal]
	if !known {
		return 0
	}
	want := t.value.of(o.capacity)
	if reclaim && t.reclaim != nil {
		want += t.reclaim.of(o.capacity)
	}
	return max(want-o.available, 0)
}

// stillCrossed reports whether any of those thresholds that are about what t is
// about, is crossed, their minimum to reclaim included.
func (p *Policy) stillCrossed(act []int, t threshold, seen observations) bool {
	return slices.ContainsFunc(act, func(i int) bool {
		other := p.thresholds[i]
		return other.signal.condition() == t.signal.condition() && other.crossed(seen, true)
	})
}
