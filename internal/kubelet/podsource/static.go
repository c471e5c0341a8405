package podsource

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// StaticConfig configures a source of static pods.
type StaticConfig struct {
	// Source is staticpod.SourceFile or staticpod.SourceHTTP.
	Source string
	// Node is this node's name.
	Node string
	// AllowAPIReferences lets static pods name ConfigMaps, Secrets, claims and
	// service accounts; a pod that names a service account then gets its token.
	// False, the default, is upstream's rule.
	AllowAPIReferences bool
	// Classes knows the API's runtime classes. A class that a pod names is held
	// there, and ObjectChanged wants to be told of its changes.
	Classes classes
	Deliver Deliver
	Log     *slog.Logger
}

// Static makes static pods of documents.
type Static struct {
	cfg  StaticConfig
	docs *latest[[]manifest.Document]

	// Run's own:

	warned map[types.UID]bool              // pods of the last delivery whose priority was told of
	known  map[string]*nodev1.RuntimeClass // by name: the classes of the last delivery's pods
	holds  bool                            // some classes
}

// NewStatic returns the source. It starts nothing.
func NewStatic(cfg StaticConfig) *Static {
	return &Static{cfg: cfg, docs: newLatest[[]manifest.Document]()}
}

// Update takes the documents that are in force now; other kinds than Pod are
// left to others. It never blocks and may be called at any time. It is not to be
// called while nobody knows what is in force: then the source has not answered.
func (s *Static) Update(docs []manifest.Document) { s.docs.put(docs) }

// Run delivers the pods of each Update until ctx is done. It returns nil then.
func (s *Static) Run(ctx context.Context) error {
	for {
		docs, ok := s.docs.get(ctx)
		if !ok {
			return nil
		}
		s.learnClasses(ctx, docs)
		if ctx.Err() != nil {
			return nil
		}
		s.cfg.Deliver(ctx, s.delivery(docs))
	}
}

// delivery returns the static pods of the documents.
func (s *Static) delivery(docs []manifest.Document) desired.Delivery {
	all := desired.Delivery{Source: s.cfg.Source, Pods: []*corev1.Pod{}}
	warned := map[types.UID]bool{}
	priorities := priorityClasses(docs)
	for _, d := range docs {
		pod, ok := d.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		static, err := s.static(pod, d)
		if err != nil {
			// Documents hold JSON that was parsed: this is a mistake of ours.
			s.cfg.Log.Error("make a static pod", "pod", d.Key.String(), "err", err)
			continue
		}
		if s.cfg.AllowAPIReferences {
			staticpod.AddToken(static)
		}
		s.applyClass(static)
		staticpod.ApplyPriorityClass(static, priorities)
		if text := staticpod.PriorityWarning(pod, priorities); text != "" {
			warned[static.UID] = true
			if !s.warned[static.UID] {
				s.cfg.Log.Warn("priority of a static pod", "pod", d.Key.String(), "file", d.File, "fault", text)
			}
		}
		all.Pods = append(all.Pods, static)
		all.Places = append(all.Places, fmt.Sprintf("%s:%d", d.File, d.Line))
	}
	s.warned = warned
	return all
}

// priorityClasses returns those that are among the documents, on their way to the
// API. A class that only the API has is not asked for: pods are to start in their
// order without it.
func priorityClasses(docs []manifest.Document) []*schedulingv1.PriorityClass {
	var all []*schedulingv1.PriorityClass
	for _, d := range docs {
		if class, ok := d.Object.(*schedulingv1.PriorityClass); ok {
			all = append(all, class)
		}
	}
	return all
}

// static returns the pod of a document. Of a URL the address is part of the
// UID, as upstream has it; where in a folder a document stands is not.
func (s *Static) static(pod *corev1.Pod, d manifest.Document) (*corev1.Pod, error) {
	if s.cfg.Source == staticpod.SourceHTTP && pod.UID == "" {
		uid, err := staticpod.UID(d.Written, s.cfg.Node, d.File)
		if err != nil {
			return nil, err
		}
		pod = pod.DeepCopy()
		pod.UID = uid
	}
	return staticpod.New(pod, d.Written, s.cfg.Node, s.cfg.Source)
}

// Check returns what makes a document unfit to be a static pod of this node.
// It is for whoever reads the documents, so that an edit that is refused leaves
// the last good one in force.
func (s *Static) Check(d manifest.Document) []manifest.Fault {
	pod, ok := d.Object.(*corev1.Pod)
	if !ok {
		return s.notPod(d)
	}
	var faults []manifest.Fault
	if bad := apivalidation.NameIsDNSSubdomain(staticpod.Name(pod.Name, s.cfg.Node), false); len(bad) > 0 {
		faults = append(faults, d.Fault(manifest.ReasonRefused, "metadata.name",
			fmt.Sprintf("with this node's name it is %q: %s", staticpod.Name(pod.Name, s.cfg.Node), bad[0]), "choose a shorter name"))
	}
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != s.cfg.Node {
		faults = append(faults, d.Fault(manifest.ReasonRefused, "spec.nodeName",
			fmt.Sprintf("static pods here run on node %s, not on %s", s.cfg.Node, pod.Spec.NodeName), "leave the field out"))
	}
	if s.cfg.AllowAPIReferences {
		return faults
	}
	for _, ref := range staticpod.References(pod) {
		faults = append(faults, d.Fault(manifest.ReasonRefused, ref.Field,
			"static pods may not reference "+ref.Resource, "create the pod through the API instead"))
	}
	return faults
}

// notPod refuses other kinds from a URL. What a folder says of them is applied
// to the API by somebody else.
func (s *Static) notPod(d manifest.Document) []manifest.Fault {
	if s.cfg.Source != staticpod.SourceHTTP {
		return nil
	}
	return []manifest.Fault{d.Fault(manifest.ReasonRefused, "kind", "a URL gives pods only", "write it to the manifest folder, or apply it with kubectl")}
}
