package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// An input makes the sets of a source that keeps its pods in a store, as a watch
// of the API does: what did not change is the same object.
type input struct {
	set      []*corev1.Pod
	specs    []int64 // generation of each
	versions int64
	turn     int // the next pod to change
}

func newInput(n int) *input {
	in := &input{versions: 1}
	for i := range n {
		in.set = append(in.set, fresh(i, 1, 1))
		in.specs = append(in.specs, 1)
	}
	return in
}

// steps makes steps, each following on the one before.
func (in *input) steps(w workload, count int) []step {
	var steps []step
	for range count {
		in.set = slices.Clone(in.set)
		var s step
		if !w.relist {
			in.versions++
		}
		for range w.pods(len(in.set)) {
			i := in.turn
			in.turn = (in.turn + 1) % len(in.set)
			if w.spec {
				in.specs[i]++
			}
			in.set[i] = fresh(i, in.versions, in.specs[i])
			s.changed = append(s.changed, in.set[i])
		}
		s.all = in.set
		steps = append(steps, s)
	}
	return steps
}
