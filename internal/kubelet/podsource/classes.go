package podsource

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// classPatience is how long the pods of a delivery wait for what the API knows
// of their runtime classes.
const classPatience = 5 * time.Second

// classes knows the API's runtime classes.
type classes interface {
	// HoldRuntimeClasses has these classes, and no others, kept for a holder, which
	// is told of their changes.
	HoldRuntimeClasses(holder types.UID, names []string)
	// GetRuntimeClass returns a class. One that is not there is an error that
	// apierrors.IsNotFound knows.
	GetRuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
}

// ObjectChanged is to be called with the holder of every runtime class that was
// not known before or has changed.
func (s *Static) ObjectChanged(holder types.UID) {
	if holder == s.holder() {
		s.docs.again()
	}
}

func (s *Static) holder() types.UID { return types.UID("source " + s.cfg.Source) }

// learnClasses finds out about the runtime classes that the pods of documents
// name. One that is among the documents counts as it stands there: it is on its
// way to the API. One that the API has no more stays known while a pod names it:
// what that pod runs in still takes what it takes.
func (s *Static) learnClasses(ctx context.Context, docs []manifest.Document) {
	names, here := classesIn(docs)
	if len(names) > 0 || s.holds {
		s.cfg.Classes.HoldRuntimeClasses(s.holder(), names)
	}
	s.holds = len(names) > 0
	ctx, cancel := context.WithTimeout(ctx, classPatience)
	defer cancel()
	known := map[string]*nodev1.RuntimeClass{}
	for _, name := range names {
		class := here[name]
		if class == nil {
			class = s.askForClass(ctx, name)
		}
		if class != nil {
			known[name] = class
		}
	}
	s.known = known
}

// classesIn returns the names of the runtime classes that pods name, sorted, and
// the classes themselves that are among the documents.
func classesIn(docs []manifest.Document) (names []string, here map[string]*nodev1.RuntimeClass) {
	named := map[string]bool{}
	here = map[string]*nodev1.RuntimeClass{}
	for _, d := range docs {
		switch o := d.Object.(type) {
		case *nodev1.RuntimeClass:
			here[o.Name] = o
		case *corev1.Pod:
			if name := classOf(o); name != "" {
				named[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(named)), here
}

// askForClass returns a class as the API has it, or else as it was last known,
// or nil. ObjectChanged comes when the API has more to say.
func (s *Static) askForClass(ctx context.Context, name string) *nodev1.RuntimeClass {
	class, err := s.cfg.Classes.GetRuntimeClass(ctx, name)
	if err == nil {
		return class
	}
	if class = s.known[name]; class == nil {
		s.cfg.Log.Warn("static pods lack what their runtime class adds", "object", "RuntimeClass "+name, "err", err)
	}
	return class
}

// applyClass gives a pod what its runtime class adds, as far as that is known.
func (s *Static) applyClass(pod *corev1.Pod) {
	if class := s.known[classOf(pod)]; class != nil {
		staticpod.ApplyRuntimeClass(pod, class)
	}
}

func classOf(pod *corev1.Pod) string {
	if pod.Spec.RuntimeClassName == nil {
		return ""
	}
	return *pod.Spec.RuntimeClassName
}
