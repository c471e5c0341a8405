// Package staticpod says what a static pod is: a pod that comes from a file or
// a URL rather than from the API, and the mirror pod that shows it there.
//
// Names, annotations and the toleration are those of the upstream kubelet. The
// UID is not: it comes from the text of the document, so that neither moving a
// file nor a release with new API defaults changes what a running pod is.
//
// Everything here is a pure function.
package staticpod

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Annotations of pods, upstream's names.
const (
	// SourceAnnotation holds the source that a pod came from.
	SourceAnnotation = "kubernetes.io/config.source"
	// HashAnnotation holds a static pod's UID, and is how a mirror is told
	// from the mirror of an older version.
	HashAnnotation = "kubernetes.io/config.hash"
	// SeenAnnotation holds when the node first saw the pod, as [TimeFormat].
	SeenAnnotation = "kubernetes.io/config.seen"
	// MirrorAnnotation marks a mirror pod and holds the static pod's hash.
	MirrorAnnotation = "kubernetes.io/config.mirror"
)

// TimeFormat is RFC 3339 with all nanoseconds, as the upstream kubelet writes
// its own times.
const TimeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// Sources of pods, upstream's names.
const (
	SourceFile = "file"
	SourceHTTP = "http"
	SourceAPI  = "api"
	SourceAll  = "*"
)

// New returns the pod that this node runs for a document of a source: a changed
// copy of pod, which is the document decoded and defaulted. written is the
// document as JSON; see [UID].
func New(pod *corev1.Pod, written []byte, node, source string) (*corev1.Pod, error) {
	p := pod.DeepCopy()
	if p.UID == "" {
		uid, err := UID(written, node, source)
		if err != nil {
			return nil, err
		}
		p.UID = uid
	}
	p.Name = Name(pod.Name, node)
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	p.Spec.NodeName = node

	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	maps.DeleteFunc(p.Annotations, func(name, _ string) bool { return ours(name) })
	p.Annotations[SourceAnnotation] = source
	p.Annotations[HashAnnotation] = string(p.UID)

	if source == SourceFile {
		tolerateAll(p)
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		*s = 1
	}
	setPriority(p)
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	return p, nil
}

// ours reports whether an annotation belongs to the node. One that stands in a
// file was copied from a running pod and would make this one a mirror.
func ours(annotation string) bool {
	return slices.Contains([]string{SourceAnnotation, HashAnnotation, SeenAnnotation, MirrorAnnotation}, annotation)
}

// tolerateAll keeps node problems from evicting the pod: nobody would bring it
// back.
func tolerateAll(p *corev1.Pod) {
	all := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if !slices.Contains(p.Spec.Tolerations, all) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, all)
	}
}

// Name returns the name that a document's pod has on a node.
func Name(name, node string) string { return name + "-" + strings.ToLower(node) }

// IsStatic reports whether a pod came from another source than the API.
func IsStatic(pod *corev1.Pod) bool {
	source := Source(pod)
	return source != "" && source != SourceAPI
}

// IsMirror reports whether a pod of the API stands for a static pod.
func IsMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[MirrorAnnotation]
	return ok
}

// Source returns where a pod came from, or "" where nothing says so.
func Source(pod *corev1.Pod) string { return pod.Annotations[SourceAnnotation] }

// MirrorOf returns the mirror of a static pod, to be created in the API. Its
// owner is the node, so that it goes with it.
func MirrorOf(pod *corev1.Pod, node string, nodeUID types.UID) *corev1.Pod {
	m := pod.DeepCopy()
	m.UID = ""
	m.ResourceVersion = ""
	m.Annotations[MirrorAnnotation] = pod.Annotations[HashAnnotation]
	controller := true
	m.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node, UID: nodeUID, Controller: &controller,
	}}
	return m
}

// Mirrors reports whether mirror stands for this version of the static pod.
func Mirrors(mirror, pod *corev1.Pod) bool {
	hash, ok := mirror.Annotations[MirrorAnnotation]
	return ok && hash == pod.Annotations[HashAnnotation] && mirror.Name == pod.Name && mirror.Namespace == pod.Namespace
}
