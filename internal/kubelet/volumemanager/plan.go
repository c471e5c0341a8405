package volumemanager

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// An op is a kind of step.
type op string

const (
	setUp         op = "set up"
	grow          op = "grow"
	keep          op = "keep" // its objects cannot be had; what is there goes on
	cleanSubPaths op = "unmount the subPaths"
	tearDown      op = "tear down"
	removePod     op = "remove the pod's folder"
)

// A step is one thing to do for a pod.
type step struct {
	op     op
	id     podvolumes.ID      // of keep and tearDown
	name   string             // the pod's name for the volume: of setUp and keep
	volume *podvolumes.Volume // of setUp and grow
	err    error              // of keep: why its content is not brought up to date
}

// String says what a step does, as people and faults have it.
func (s step) String() string {
	switch s.op {
	case setUp, grow, keep:
		return string(s.op) + " " + podvolumes.Describe(s.name)
	case tearDown:
		return fmt.Sprintf("%s volume %s of kind %s", s.op, s.id.Dir, s.id.Kind)
	default:
		return string(s.op)
	}
}

// A resolution is what became known of one of the pod's volumes.
type resolution struct {
	id     podvolumes.ID // with err: of what is there under this name, or zero
	name   string
	volume *podvolumes.Volume
	err    error
	hold   error // why it cannot be set up yet, though all is known
}

// plan returns what brings a pod's volumes to what is wanted, in order, and the
// errors of the volumes for which nothing can be done now.
//
// A volume that is there and that the pod does not name any more stays until
// the pod ends: a container may still use it.
func plan(want intent, sweep bool, resolved []resolution, actual map[podvolumes.ID]volumeState) (steps []step, errs []error) {
	switch want {
	case unsaid:
		return nil, nil
	case wanted:
		return planMount(resolved, actual)
	default:
		return planUnmount(sweep, actual), nil
	}
}

func planMount(resolved []resolution, actual map[podvolumes.ID]volumeState) (steps []step, errs []error) {
	for _, r := range resolved {
		have, there := actual[r.id]
		err := r.err
		if err == nil && !have.verified {
			err = r.hold
		}
		switch {
		case err == nil && (!there || !have.verified || r.id.Kind.Renews()):
			steps = append(steps, step{op: setUp, name: r.name, id: r.id, volume: r.volume})
		case err == nil:
			// Two names of one claim lead to one volume: the second is only noted.
			steps = append(steps, step{op: keep, name: r.name, id: r.id})
		case there && have.complete:
			steps = append(steps, step{op: keep, name: r.name, id: r.id, err: err})
		default:
			errs = append(errs, err)
		}
		if err == nil && r.volume.GrowTo > have.grown {
			steps = append(steps, step{op: grow, name: r.name, id: r.id, volume: r.volume})
		}
	}
	return steps, errs
}

func planUnmount(sweep bool, actual map[podvolumes.ID]volumeState) []step {
	steps := []step{{op: cleanSubPaths}}
	for id := range actual {
		steps = append(steps, step{op: tearDown, id: id})
	}
	slices.SortFunc(steps[1:], func(a, b step) int {
		return cmp.Or(cmp.Compare(a.id.Kind, b.id.Kind), cmp.Compare(a.id.Dir, b.id.Dir))
	})
	if sweep {
		steps = append(steps, step{op: removePod})
	}
	return steps
}
