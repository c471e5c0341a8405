package binder

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/volume"
)

// steps are what must be written before a pod's claims can be bound.
type steps struct {
	prebind   []*corev1.PersistentVolume      // with their claim filled in
	provision []*corev1.PersistentVolumeClaim // get the node's name
	pending   bool                            // some claim is not bound yet
}

// claimKey is how world.claims is keyed.
func claimKey(namespace, name string) string { return namespace + "/" + name }

// claimNames are the claims that a pod mounts.
func claimNames(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, pod.Name+"-"+v.Name)
		}
	}
	return names
}

// planClaims returns why the pod's claims keep it off the node, and what to
// write for those that wait for a consumer. Volumes that it chooses are taken
// in w, so that the next pod does not get them.
func planClaims(pod *corev1.Pod, w *world) (why []string, s steps) {
	chosen := map[string]*corev1.PersistentVolume{}
	for _, name := range claimNames(pod) {
		claim := w.claims[claimKey(pod.Namespace, name)]
		switch {
		case claim == nil:
			why = append(why, fmt.Sprintf("persistentvolumeclaim %q not found", name))
		case claim.DeletionTimestamp != nil:
			why = append(why, fmt.Sprintf("persistentvolumeclaim %q is being deleted", name))
		case bound(claim):
			why = append(why, w.boundClaim(pod, claim)...)
		default:
			s.pending = true
			why = append(why, w.unboundClaim(claim, chosen, &s)...)
		}
	}
	if len(why) > 0 {
		return why, steps{}
	}
	for i, v := range w.volumes {
		if c := chosen[v.Name]; c != nil {
			w.volumes[i] = c
		}
	}
	return nil, s
}

// bound reports whether the volume controller is done with a claim.
func bound(claim *corev1.PersistentVolumeClaim) bool {
	_, done := claim.Annotations[volume.AnnBindCompleted]
	return claim.Spec.VolumeName != "" && done
}

func (w *world) boundClaim(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) []string {
	i := slices.IndexFunc(w.volumes, func(v *corev1.PersistentVolume) bool { return v.Name == claim.Spec.VolumeName })
	if i < 0 {
		return []string{reasonVolumeGone}
	}
	var why []string
	if volume.CheckNodeAffinity(w.volumes[i], w.node.Labels) != nil {
		why = append(why, reasonVolumeNode)
	}
	if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) && w.usedByOther(pod, claim.Name) {
		why = append(why, reasonOncePod)
	}
	return why
}

func (w *world) usedByOther(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(w.pods, func(other *corev1.Pod) bool {
		return other.UID != pod.UID && other.Namespace == pod.Namespace && slices.Contains(claimNames(other), claim)
	})
}

// unboundClaim decides about a claim without a volume: only those of a class
// that waits for its first consumer are ours; the volume controller binds the
// others by itself.
func (w *world) unboundClaim(claim *corev1.PersistentVolumeClaim, chosen map[string]*corev1.PersistentVolume, s *steps) []string {
	class := volume.GetPersistentVolumeClaimClass(claim)
	if !w.classes[class] {
		return []string{"pod has unbound immediate PersistentVolumeClaims"}
	}
	if claim.Spec.VolumeName != "" {
		return nil // the volume controller is at it
	}
	found, err := volume.FindMatchingVolume(claim, w.volumes, w.node, chosen, false, true)
	switch {
	case err != nil:
		return []string{err.Error()}
	case found != nil:
		v, changed, err := volume.GetBindVolumeToClaim(found, claim)
		if err != nil {
			return []string{err.Error()}
		}
		chosen[v.Name] = v
		if changed {
			s.prebind = append(s.prebind, v)
		}
	case w.static[class]:
		return []string{reasonNoVolume}
	case claim.Annotations[volume.AnnSelectedNode] != w.node.Name:
		s.provision = append(s.provision, claim)
	}
	return nil
}
