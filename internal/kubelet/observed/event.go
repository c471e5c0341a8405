package observed

import "k8s.io/apimachinery/pkg/types"

// An Event says that the cache has news of a pod. It carries no state: whoever
// receives it reads the cache, which was written before.
type Event struct {
	UID  types.UID
	Kind EventKind
}

// An EventKind says how a pod changed.
type EventKind string

// The kinds of events. Of several changes of one pod that nobody has received
// yet, the last one counts.
const (
	PodChanged EventKind = "changed" // a sandbox or container came, went or changed its state
	PodGone    EventKind = "gone"    // the runtime has nothing of the pod any more
)
