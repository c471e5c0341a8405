package kubelet

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podadmit"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsource"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/startorder"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// SetManifests takes the documents of the manifest folder, all that are in
// force. Until it is called the source "file" has not been seen, and no pod is
// removed.
func (k *Kubelet) SetManifests(docs []manifest.Document) { k.files.Update(docs) }

// CheckManifest says why a document cannot be a static pod of this node.
func (k *Kubelet) CheckManifest(d manifest.Document) []manifest.Fault {
	return checkStatic(k.files, features(), d)
}

// SetURLManifests takes the documents of the manifest URL, as SetManifests does
// those of the folder. Each one's File is the address that it came from.
func (k *Kubelet) SetURLManifests(docs []manifest.Document) { k.fromURL.Update(docs) }

// CheckURLManifest says why a document of the manifest URL cannot be a static
// pod of this node.
func (k *Kubelet) CheckURLManifest(d manifest.Document) []manifest.Fault {
	return checkStatic(k.fromURL, features(), d)
}

// NewCheck returns what Kubelet.CheckManifest would say on a node of this name
// that lets static pods refer to the API's objects, on a machine that can do all
// that any can.
func NewCheck(node string) func(d manifest.Document) []manifest.Fault {
	static := podsource.NewStatic(podsource.StaticConfig{Source: staticpod.SourceFile, Node: node, AllowAPIReferences: true})
	have := features()
	have.AppArmor = true
	return func(d manifest.Document) []manifest.Fault { return checkStatic(static, have, d) }
}

// checkStatic says why a document cannot be a static pod: for what it is, or
// because the kubelet would refuse it whatever else runs here. A pod that is only
// refused when it is admitted has ended the one before it.
func checkStatic(static *podsource.Static, have podadmit.Features, d manifest.Document) []manifest.Fault {
	faults := static.Check(d)
	pod, ok := d.Object.(*v1.Pod)
	if !ok || len(faults) > 0 {
		return faults
	}
	if wrong := startorder.Check(pod, d.Key.Namespace); wrong != "" {
		field := "metadata.annotations[" + startorder.Annotation + "]"
		return []manifest.Fault{d.Fault(manifest.ReasonRefused, field, wrong, "")}
	}
	asked := pod.DeepCopy()
	if asked.UID == "" {
		asked.UID = "of-its-content"
	}
	if asked.Annotations == nil {
		asked.Annotations = map[string]string{}
	}
	asked.Annotations[staticpod.SourceAnnotation] = staticpod.SourceFile
	refusal := podadmit.Admit(podadmit.Node{Features: have}, asked, nil)
	if refusal == nil {
		return nil
	}
	field, message, hint := "", refusal.Message, ""
	if refusal.Reason == reason.UnsupportedField {
		field, message, _ = strings.Cut(refusal.Message, ": ")
		field, _, _ = strings.Cut(field, " ") // spec.volumes[0] (cache)
		hint = "leave the field out"
	}
	return []manifest.Fault{d.Fault(manifest.ReasonRefused, field, message, hint)}
}
