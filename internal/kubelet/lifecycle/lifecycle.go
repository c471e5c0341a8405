// Package lifecycle holds the words in which the sync loop and the pod workers
// talk about a pod's life: what is asked of a worker, and how far it is.
//
// Values are not changed once they are handed over, so any goroutine may read
// them.
package lifecycle

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Kind says what is asked of a pod's worker.
type Kind int

// What can be asked.
const (
	Create Kind = iota // the source has a pod that it did not have before
	Update             // the source changed the pod
	Kill               // stop the pod for good, though its source still has it
	Remove             // stop the pod: its source has it no more
)

// String returns the kind's name, for logs and traces.
func (k Kind) String() string {
	switch k {
	case Create:
		return "create"
	case Update:
		return "update"
	case Kill:
		return "kill"
	case Remove:
		return "remove"
	}
	return "unknown"
}

// A Request asks something of the worker of one pod. Exactly one of Pod and
// Orphan is set.
type Request struct {
	Kind   Kind
	Pod    *v1.Pod
	Mirror *v1.Pod // of a static pod, as last seen in the API; nil: not known
	Orphan *Orphan // Kind is Remove
	Grace  *int64  // seconds, for Kill and Remove; nil: what the pod says
}

// An Orphan names a pod of which only the runtime knows.
type Orphan struct {
	UID       types.UID
	Namespace string
	Name      string
}

// UID returns the UID of the pod that the request is about.
func (r *Request) UID() types.UID {
	if r.Pod != nil {
		return r.Pod.UID
	}
	return r.Orphan.UID
}

// FullName returns namespace/name of the pod that the request is about.
func (r *Request) FullName() string {
	if r.Pod != nil {
		return r.Pod.Namespace + "/" + r.Pod.Name
	}
	return r.Orphan.Namespace + "/" + r.Orphan.Name
}

// A State is how far a pod's worker is. States only grow.
type State int

// The states, in order.
const (
	Waiting     State = iota // another instance of a static pod has to end first
	Syncing                  // containers are started, restarted and kept running
	Terminating              // no container starts any more, running ones are stopped
	Terminated               // nothing runs; volumes and cgroups are released
	Finished                 // nothing is left to do for this instance
)

// String returns the state's name, for logs and traces.
func (s State) String() string {
	switch s {
	case Waiting:
		return "waiting"
	case Syncing:
		return "syncing"
	case Terminating:
		return "terminating"
	case Terminated:
		return "terminated"
	case Finished:
		return "finished"
	}
	return "unknown"
}

// Terminal reports whether the API has a last phase of a pod, which is told
// only when nothing of it runs.
func Terminal(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// An Info is what the workers tell of one pod.
type Info struct {
	UID     types.UID
	State   State
	Removed bool    // its source has it no more
	Pod     *v1.Pod // nil for a pod that only the runtime knows
}
