package desired

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// adopt returns the stored form of a new pod.
func adopt(pod *corev1.Pod, source string, now time.Time) *corev1.Pod {
	p := *pod // what lies below is shared and never changed
	p.Annotations = make(map[string]string, len(pod.Annotations)+2)
	maps.Copy(p.Annotations, pod.Annotations)
	p.Annotations[staticpod.SourceAnnotation] = source
	p.Annotations[staticpod.SeenAnnotation] = now.Format(staticpod.TimeFormat)
	return &p
}

// sameVersion reports whether two deliveries of a pod are the same by what the
// source itself promises: the API server gives every version of an object
// another resourceVersion. The one in a document is only text.
func (s *source) sameVersion(a, b *corev1.Pod) bool {
	return a == b || !s.static && a.ResourceVersion != "" && a.ResourceVersion == b.ResourceVersion
}

// change compares a pod with what is stored of it, and returns what is to be
// stored and what to say of it. Of the metadata only labels, annotations and the
// deletion count.
func (s *source) change(stored, pod *corev1.Pod) (current *corev1.Pod, op Op, changed bool) {
	differs := !s.sameButStatus(stored, pod)
	if !differs && sameStatus(&stored.Status, &pod.Status) {
		return stored, 0, false
	}
	p := *pod
	p.Annotations = make(map[string]string, len(pod.Annotations)+2)
	maps.Copy(p.Annotations, pod.Annotations)
	for _, name := range local {
		if v, ok := stored.Annotations[name]; ok {
			p.Annotations[name] = v
		}
	}
	switch {
	case !differs:
		return &p, OpReconcile, true
	case pod.DeletionTimestamp != nil:
		return &p, OpDelete, true
	default:
		return &p, OpUpdate, true
	}
}

func (s *source) sameButStatus(a, b *corev1.Pod) bool {
	return a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		samePointed(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		maps.Equal(a.Labels, b.Labels) &&
		sameForeign(a.Annotations, b.Annotations) &&
		(s.sameGeneration(a, b) || apiequality.Semantic.DeepEqual(&a.Spec, &b.Spec))
}

// sameGeneration reports whether two versions of a pod have the same spec by
// their generation. API servers raise a pod's generation with each change of its
// spec since Kubernetes 1.35, and without a way to turn it off; a kubelet is
// never newer than its server. 0 is a pod that was made before. The generation
// in a document is only text.
func (s *source) sameGeneration(a, b *corev1.Pod) bool {
	return !s.static && a.Generation != 0 && a.Generation == b.Generation
}

// sameStatus compares two statuses. What nearly always differs, if anything does,
// is looked at first: a comparison by reflection makes a hundred small objects.
func sameStatus(a, b *corev1.PodStatus) bool {
	return a.Phase == b.Phase && a.Reason == b.Reason && a.Message == b.Message && a.ObservedGeneration == b.ObservedGeneration &&
		slices.EqualFunc(a.Conditions, b.Conditions, sameCondition) &&
		slices.EqualFunc(a.ContainerStatuses, b.ContainerStatuses, sameRun) &&
		apiequality.Semantic.DeepEqual(a, b)
}

func sameCondition(a, b corev1.PodCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
		a.LastTransitionTime.Equal(&b.LastTransitionTime) && a.LastProbeTime.Equal(&b.LastProbeTime)
}

// sameRun reports whether two statuses of a container may be the same.
func sameRun(a, b corev1.ContainerStatus) bool {
	return a.RestartCount == b.RestartCount && a.ContainerID == b.ContainerID && a.Ready == b.Ready && a.ImageID == b.ImageID &&
		(a.State.Running == nil) == (b.State.Running == nil) && (a.State.Waiting == nil) == (b.State.Waiting == nil)
}

func samePointed[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// local are the annotations that the node sets and no source knows.
var local = [...]string{staticpod.SourceAnnotation, staticpod.MirrorAnnotation, staticpod.SeenAnnotation}

func isLocal(name string) bool { return name == local[0] || name == local[1] || name == local[2] }

// sameForeign compares the annotations that come from the source.
func sameForeign(a, b map[string]string) bool {
	n := 0
	for name, value := range a {
		if isLocal(name) {
			continue
		}
		if other, ok := b[name]; !ok || other != value {
			return false
		}
		n++
	}
	for name := range b {
		if !isLocal(name) {
			n--
		}
	}
	return n == 0
}
