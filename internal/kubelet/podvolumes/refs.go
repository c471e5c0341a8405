package podvolumes

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// A RefKind is the kind of an API object that a pod refers to.
type RefKind string

// The kinds of objects that pods refer to.
const (
	RefConfigMap        RefKind = "ConfigMap"
	RefSecret           RefKind = "Secret"
	RefClaim            RefKind = "PersistentVolumeClaim"
	RefPersistentVolume RefKind = "PersistentVolume"
	RefServiceAccount   RefKind = "ServiceAccount"
	RefRuntimeClass     RefKind = "RuntimeClass"
	RefTrustBundle      RefKind = "ClusterTrustBundle"
	RefPodCertificate   RefKind = "certificate of pod" // named by the pod

	RefCSIDriver        RefKind = "CSIDriver"
	RefVolumeAttachment RefKind = "VolumeAttachment"
	RefNode             RefKind = "Node"
)

// TrustBundles refers to all ClusterTrustBundles: pods choose among them by
// signer and labels, and there are few.
var TrustBundles = Ref{Kind: RefTrustBundle}

// A Ref names an API object. Namespace is empty for what is in none. An empty
// Name stands for all objects of the kind.
type Ref struct {
	Kind      RefKind
	Namespace string
	Name      string
}

func (r Ref) String() string {
	if r.Name == "" {
		return string(r.Kind) + "s"
	}
	if r.Namespace == "" {
		return fmt.Sprintf("%s %s", r.Kind, r.Name)
	}
	return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name)
}

// Refs returns every ConfigMap, Secret and claim that a pod's volumes,
// environments and image pulls refer to, its RuntimeClass, and TrustBundles if it
// has some projected, each once, in order. Service accounts are not among them:
// their tokens are asked for, not watched.
func Refs(pod *v1.Pod) []Ref {
	var refs []Ref
	add := func(kind RefKind, name string) {
		if name != "" {
			refs = append(refs, Ref{kind, pod.Namespace, name})
		}
	}
	for i := range pod.Spec.Volumes {
		volumeRefs(&pod.Spec.Volumes[i], add)
		add(RefClaim, ClaimName(pod, &pod.Spec.Volumes[i]))
		if projectsBundles(&pod.Spec.Volumes[i]) {
			refs = append(refs, TrustBundles)
		}
	}
	for c := range containers(pod) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				add(RefConfigMap, from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				add(RefSecret, from.SecretRef.Name)
			}
		}
		for _, env := range c.Env {
			if env.ValueFrom == nil {
				continue
			}
			if ref := env.ValueFrom.ConfigMapKeyRef; ref != nil {
				add(RefConfigMap, ref.Name)
			}
			if ref := env.ValueFrom.SecretKeyRef; ref != nil {
				add(RefSecret, ref.Name)
			}
		}
	}
	for _, pull := range pod.Spec.ImagePullSecrets {
		add(RefSecret, pull.Name)
	}
	if class := pod.Spec.RuntimeClassName; class != nil && *class != "" {
		refs = append(refs, Ref{Kind: RefRuntimeClass, Name: *class})
	}
	slices.SortFunc(refs, func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(refs)
}

func volumeRefs(v *v1.Volume, add func(RefKind, string)) {
	switch {
	case v.ConfigMap != nil:
		add(RefConfigMap, v.ConfigMap.Name)
	case v.Secret != nil:
		add(RefSecret, v.Secret.SecretName)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			if source.ConfigMap != nil {
				add(RefConfigMap, source.ConfigMap.Name)
			}
			if source.Secret != nil {
				add(RefSecret, source.Secret.Name)
			}
		}
	}
}

func projectsBundles(v *v1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool { return s.ClusterTrustBundle != nil })
}
