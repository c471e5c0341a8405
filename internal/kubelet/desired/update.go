package desired

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// An Op is what an update says of its pods.
type Op int

// The operations. Those of one delivery come in this order.
const (
	OpRemove    Op = iota // the pods are gone from their source: end them
	OpAdd                 // the pods are new
	OpUpdate              // the pods' spec, labels or annotations changed
	OpDelete              // the pods are marked for deletion: end them gracefully
	OpReconcile           // only the status that the API has changed
	OpRestore             // the pods were here in an earlier run, which admitted them; their source has not answered
	OpSet                 // the pods are all that are wanted, of all sources
)

// String returns upstream's name of the operation.
func (o Op) String() string {
	switch o {
	case OpRemove:
		return "REMOVE"
	case OpAdd:
		return "ADD"
	case OpUpdate:
		return "UPDATE"
	case OpDelete:
		return "DELETE"
	case OpReconcile:
		return "RECONCILE"
	case OpRestore:
		return "RESTORE"
	case OpSet:
		return "SET"
	default:
		return fmt.Sprintf("Op(%d)", int(o))
	}
}

// An Update is one message to the sync loop. Its pods are read-only. An OpAdd
// without pods announces that an empty source was seen.
type Update struct {
	Op     Op
	Source string
	Pods   []*corev1.Pod
}

// A Mode says in which form changes are told. They are those that upstream's
// pod configuration had up to release 1.36; later ones know [Incremental] alone.
type Mode int

// The modes.
const (
	// Incremental tells what changed: REMOVE, ADD, UPDATE, DELETE, RECONCILE, and
	// RESTORE. It is the default.
	Incremental Mode = iota
	// Snapshot tells everything, as one SET, whenever a pod is new, changed,
	// marked for deletion or gone, or a source is first seen.
	Snapshot
	// SnapshotAndUpdates tells everything, as one SET, whenever a pod is new or
	// gone, or a source is first seen; and what changed as UPDATE and DELETE.
	SnapshotAndUpdates
)

func (m Mode) valid() bool { return m >= Incremental && m <= SnapshotAndUpdates }

// updates puts what one delivery changed, source by source and the one that
// delivered first, into the form of the mode.
func (p *Pods) updates(changes []*changes) []Update {
	var updates []Update
	if p.mode == Incremental {
		for _, c := range changes {
			updates = c.append(updates, OpRemove, OpAdd, OpUpdate, OpDelete, OpReconcile, OpRestore)
		}
		return updates
	}
	snapshot := false
	for _, c := range changes {
		snapshot = snapshot || c.first || c.has(OpRemove, OpAdd, OpRestore) || p.mode == Snapshot && c.has(OpUpdate, OpDelete)
	}
	if snapshot {
		updates = append(updates, Update{OpSet, changes[0].source.name, p.All()})
	}
	if p.mode == SnapshotAndUpdates {
		for _, c := range changes {
			c.first = false // the set has said it
			updates = c.append(updates, OpUpdate, OpDelete)
		}
	}
	return updates
}
