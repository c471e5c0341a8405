package devices

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
)

// A need is what one container asks for of one resource, and what there is of it.
type need struct {
	resource   string
	count      int
	has        sets.Set[string] // what the container was given before; nil: nothing
	reusable   sets.Set[string] // of the pod's init containers that will have ended
	registered bool             // a plugin serves the resource, or did
	healthy    sets.Set[string]
	used       sets.Set[string] // by any pod
}

// settled reports whether the container has what it asks for, or the error, in
// upstream's words, for which it cannot have it, whatever a plugin says.
func (n need) settled() (bool, error) {
	switch {
	case n.has != nil && n.has.Len() != n.count:
		return false, fmt.Errorf("changed request for resource %q from %d to %d", n.resource, n.has.Len(), n.count)
	case !n.registered:
		return false, fmt.Errorf("cannot allocate unregistered device %s", n.resource)
	case n.healthy.Len() == 0:
		return false, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", n.resource)
	case !n.healthy.IsSuperset(n.has):
		return false, fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", n.resource)
	}
	return n.has != nil, nil
}

// choose returns the devices that a container is given: those of init containers
// first, then those that the plugin prefers, then the first that are free. prefer asks
// the plugin, given what is available, what has to be among it, and how many.
func choose(n need, prefer func(available, include []string, count int) ([]string, error)) ([]string, error) {
	chosen := sets.New[string]()
	take := func(from sets.Set[string]) {
		for _, id := range sets.List(from) {
			if chosen.Len() == n.count {
				return
			}
			chosen.Insert(id)
		}
	}
	take(n.reusable)
	left := n.count - chosen.Len()
	if left == 0 {
		return sets.List(chosen), nil
	}
	free := n.healthy.Difference(n.used)
	if free.Len() < left {
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", n.resource, left, free.Len())
	}
	preferred, err := prefer(sets.List(free.Union(chosen)), sets.List(chosen), n.count)
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	take(sets.New(preferred...).Intersection(free))
	take(free)
	return sets.List(chosen), nil
}
