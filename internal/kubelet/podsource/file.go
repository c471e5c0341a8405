package podsource

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// FileConfig configures the source `file`.
type FileConfig struct {
	// Node is this node's name.
	Node string
	// AllowAPIReferences lets static pods name ConfigMaps, Secrets, claims and
	// service accounts; a pod that names a service account then gets its token.
	// False, the default, is upstream's rule.
	AllowAPIReferences bool
	Deliver            Deliver
	Log                *slog.Logger
}

// File makes static pods of documents.
type File struct {
	cfg  FileConfig
	docs *latest[[]manifest.Document]
}

// NewFile returns the source. It starts nothing.
func NewFile(cfg FileConfig) *File {
	return &File{cfg: cfg, docs: newLatest[[]manifest.Document]()}
}

// Update takes the documents that are in force now; other kinds than Pod are
// left to others. It never blocks and may be called at any time. It is not to be
// called while nobody knows what is in force: then the source has not answered.
func (f *File) Update(docs []manifest.Document) { f.docs.put(docs) }

// Run delivers the pods of each Update until ctx is done. It returns nil then.
func (f *File) Run(ctx context.Context) error {
	for {
		docs, ok := f.docs.get(ctx)
		if !ok {
			return nil
		}
		f.cfg.Deliver(ctx, f.delivery(docs))
	}
}

// delivery returns the static pods of the documents.
func (f *File) delivery(docs []manifest.Document) desired.Delivery {
	all := desired.Delivery{Source: staticpod.SourceFile, Pods: []*corev1.Pod{}}
	for _, d := range docs {
		pod, ok := d.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		static, err := staticpod.New(pod, d.Written, f.cfg.Node, staticpod.SourceFile)
		if err != nil {
			// Documents hold JSON that was parsed: this is a mistake of ours.
			f.cfg.Log.Error("make a static pod", "pod", d.Key.String(), "err", err)
			continue
		}
		if f.cfg.AllowAPIReferences {
			staticpod.AddToken(static)
		}
		all.Pods = append(all.Pods, static)
		all.Places = append(all.Places, fmt.Sprintf("%s:%d", d.File, d.Line))
	}
	return all
}

// Check returns what makes a document unfit to be a static pod of this node.
// It is for whoever reads the documents, so that an edit that is refused leaves
// the last good one in force.
func (f *File) Check(d manifest.Document) []manifest.Fault {
	pod, ok := d.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	var faults []manifest.Fault
	if bad := apivalidation.NameIsDNSSubdomain(staticpod.Name(pod.Name, f.cfg.Node), false); len(bad) > 0 {
		faults = append(faults, d.Fault(manifest.ReasonRefused, "metadata.name",
			fmt.Sprintf("with this node's name it is %q: %s", staticpod.Name(pod.Name, f.cfg.Node), bad[0]), "choose a shorter name"))
	}
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != f.cfg.Node {
		faults = append(faults, d.Fault(manifest.ReasonRefused, "spec.nodeName",
			fmt.Sprintf("this folder's pods run on node %s, not on %s", f.cfg.Node, pod.Spec.NodeName), "leave the field out"))
	}
	if f.cfg.AllowAPIReferences {
		return faults
	}
	for _, ref := range staticpod.References(pod) {
		faults = append(faults, d.Fault(manifest.ReasonRefused, ref.Field,
			"static pods may not reference "+ref.Resource, "create the pod through the API instead"))
	}
	return faults
}
