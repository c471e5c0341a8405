// Package manifestdiff says what becomes of objects when other documents take
// the place of those in force: which are new, changed or gone, in which fields,
// and what that does to their pods. Values of Secrets are masked.
//
// Everything here is a pure function; any goroutine may call it.
package manifestdiff

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// An Action is what becomes of an object.
type Action string

// The actions.
const (
	Add       Action = "add"
	Update    Action = "update"
	Remove    Action = "remove"
	Keep      Action = "keep" // its document is not good: the one in force stays
	Unchanged Action = "unchanged"
)

// A Change is what becomes of one object.
type Change struct {
	Action Action `json:"action"`
	Object string `json:"object"` // "Pod default/web"
	// Place is where its document is, web.yaml:3; of one that goes, where it was.
	Place  string  `json:"place"`
	Effect string  `json:"effect,omitempty"` // on what runs
	Fields []Field `json:"fields,omitempty"` // of an update
}

// Compare returns what becomes of the objects of one node, by object. Those of
// kept are in after as they were before.
func Compare(before, after []manifest.Document, kept []manifest.Key, node string) []Change {
	changes := []Change{}
	old := map[manifest.Key]manifest.Document{}
	for _, d := range before {
		old[d.Key] = d
	}
	for _, d := range after {
		was, ok := old[d.Key]
		delete(old, d.Key)
		c := Change{Object: d.Key.String(), Place: place(d)}
		switch {
		case ok && slices.Contains(kept, d.Key):
			c.Action, c.Effect = Keep, "its document is not good: what is in force stays"
		case ok:
			c.update(was, d, node)
		default:
			c.Action = Add
			if _, is := d.Object.(*v1.Pod); is {
				c.Effect = "the pod starts"
			}
		}
		changes = append(changes, c)
	}
	for _, d := range old {
		c := Change{Action: Remove, Object: d.Key.String(), Place: place(d)}
		if _, is := d.Object.(*v1.Pod); is {
			c.Effect = "the pod ends"
		}
		changes = append(changes, c)
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Object, b.Object) })
	return changes
}

func place(d manifest.Document) string { return fmt.Sprintf("%s:%d", d.File, d.Line) }

// update says what an object's new document changes.
func (c *Change) update(before, after manifest.Document, node string) {
	c.Action = Unchanged
	if bytes.Equal(before.Written, after.Written) {
		return
	}
	was, is := before.Object.(*v1.Pod)
	if is {
		now := after.Object.(*v1.Pod)
		switch {
		case uid(before, was, node) != uid(after, now, node):
			c.Effect = "the pod is recreated: the old one ends before the new one starts"
		case now.UID == "":
			return // another spelling of the same
		default:
			c.Effect = restarts(was, now)
		}
	}
	c.Action = Update
	c.Fields = fields(before, after)
}

// uid returns the identity of a document's pod. One that no UID can be made of
// is another each time, by its own text.
func uid(d manifest.Document, pod *v1.Pod, node string) string {
	if pod.UID != "" {
		return string(pod.UID)
	}
	id, err := staticpod.UID(d.Written, node, staticpod.SourceFile)
	if err != nil {
		return string(d.Written)
	}
	return string(id)
}

// restarts says which containers a change of a pod that keeps its UID restarts.
func restarts(before, after *v1.Pod) string {
	hashes := map[string]string{}
	for _, c := range before.Spec.Containers {
		hashes[c.Name] = podfiles.Hash(&c)
	}
	var names []string
	for _, c := range after.Spec.Containers {
		if hashes[c.Name] != podfiles.Hash(&c) {
			names = append(names, c.Name)
		}
		delete(hashes, c.Name)
	}
	if len(names) > 0 {
		return "the pod stays, for its UID is written; these containers start anew: " + strings.Join(names, ", ")
	}
	return "the pod stays, for its UID is written; no container restarts, and each takes the change when it starts next"
}
