package nodeshutdown

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/startorder"
)

// criticalPriority is that of the class system-cluster-critical, from which on
// pods are critical.
const criticalPriority = 2_000_000_000

// A Period is how long pods get that are of a priority, or of a higher one that
// has no period of its own.
type Period struct {
	Priority int32
	Grace    time.Duration // whole seconds
}

// Periods returns the two periods that upstream makes of the total time of a
// shutdown and of the part of it that is for critical pods; none of 0.
func Periods(total, critical time.Duration) []Period {
	if total == 0 {
		return nil
	}
	return []Period{
		{Priority: 0, Grace: (total - critical).Truncate(time.Second)},
		{Priority: criticalPriority, Grace: critical.Truncate(time.Second)},
	}
}

// total is how long a shutdown may take.
func total(periods []Period) time.Duration {
	var sum time.Duration
	for _, p := range periods {
		sum += p.Grace
	}
	return sum
}

// A group is the pods that share a period.
type group struct {
	Period
	waves [][]*v1.Pod // one after the other
}

// plan returns in which order pods stop: group after group, the least important
// first, and in a group each pod before those that it comes after. periods are
// ordered by priority. A priority below all of them has the first, as upstream's
// node shutdown manager has it; a pod that others come after stops no earlier
// than they. Groups without pods are left out: nobody waits for them.
func plan(periods []Period, pods []*v1.Pod) []group {
	var groups []group
	last := -1
	for _, w := range startorder.Waves(pods, func(priority int32) int { return periodOf(periods, priority) }) {
		if w.Class != last {
			groups = append(groups, group{Period: periods[w.Class]})
			last = w.Class
		}
		g := &groups[len(groups)-1]
		g.waves = append(g.waves, w.Pods)
	}
	return groups
}

// periodOf returns the index of the period of a priority.
func periodOf(periods []Period, priority int32) int {
	i, found := slices.BinarySearchFunc(periods, priority, func(p Period, priority int32) int {
		switch {
		case p.Priority < priority:
			return -1
		case p.Priority > priority:
			return 1
		}
		return 0
	})
	if found || i == 0 {
		return i
	}
	return i - 1
}

// grace returns how many seconds a pod gets of the time that its wave has: no
// more than it asks for.
func grace(pod *v1.Pod, left time.Duration) int64 {
	seconds := int64(max(left.Round(time.Second), 0) / time.Second)
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		return min(*own, seconds)
	}
	return seconds
}
