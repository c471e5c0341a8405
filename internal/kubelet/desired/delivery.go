package desired

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Kind says what a delivery holds.
type Kind int

// The kinds of delivery.
const (
	// Full is every pod of the source: one that is not in it is gone.
	Full Kind = iota
	// Delta is what changed since the source's last delivery: new and changed
	// pods, each once, and those that are gone. What is gone and comes again under
	// the same UID is only among the pods.
	Delta
	// Restored is what an earlier run remembers of a source that has not
	// answered yet. It does not count as an answer.
	Restored
)

// A Delivery is what a source says. Its pods are the receiver's to keep and to
// read, but not to change.
type Delivery struct {
	Source string
	Kind   Kind
	Pods   []*corev1.Pod
	// Gone are the pods that a Delta takes away.
	Gone []types.UID
	// Places say, for each of Pods, where a person finds it: web.yaml:3. Nil: the
	// source's name says it.
	Places []string
}

// place returns where a person finds a pod, or "".
func (d Delivery) place(i int) string {
	if i < len(d.Places) {
		return d.Places[i]
	}
	return ""
}
