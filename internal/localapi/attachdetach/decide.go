package attachdetach

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// world is what the API has.
type world struct {
	pods        []*corev1.Pod
	nodes       map[string]*corev1.Node
	claims      map[string]*corev1.PersistentVolumeClaim // by namespace/name
	volumes     map[string]*corev1.PersistentVolume
	drivers     map[string]*storagev1.CSIDriver
	attachments map[string]*storagev1.VolumeAttachment
}

func newWorld(pods []*corev1.Pod, nodes []*corev1.Node, claims []*corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, drivers []*storagev1.CSIDriver, attachments []*storagev1.VolumeAttachment) world {
	byName := func(o metav1.Object) string { return o.GetName() }
	return world{
		pods: pods, nodes: index(nodes, byName), volumes: index(volumes, byName), drivers: index(drivers, byName), attachments: index(attachments, byName),
		claims: index(claims, func(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }),
	}
}

func index[T metav1.Object](list []T, key func(metav1.Object) string) map[string]T {
	all := make(map[string]T, len(list))
	for _, object := range list {
		all[key(object)] = object
	}
	return all
}

// decide returns what is to be attached, and what is attached and nobody uses,
// both in order. An attachment that is being deleted is neither: it is made anew
// when it is gone. Those that somebody else made stay.
func decide(w world) (attach, detach []*storagev1.VolumeAttachment) {
	wanted := map[string]*storagev1.VolumeAttachment{}
	for _, pod := range w.pods {
		if pod.Spec.NodeName == "" || terminal(pod) {
			continue
		}
		for i := range pod.Spec.Volumes {
			if pv := w.volume(pod, &pod.Spec.Volumes[i]); pv != nil {
				a := attachmentOf(pv, pod.Spec.NodeName)
				wanted[a.Name] = a
			}
		}
	}
	for name, a := range wanted {
		if w.attachments[name] == nil {
			attach = append(attach, a)
		}
	}
	for name, a := range w.attachments {
		if wanted[name] == nil && a.DeletionTimestamp == nil && a.Spec.Source.PersistentVolumeName != nil && w.unused(a) {
			detach = append(detach, a)
		}
	}
	for _, list := range [][]*storagev1.VolumeAttachment{attach, detach} {
		slices.SortFunc(list, func(a, b *storagev1.VolumeAttachment) int { return cmp.Compare(a.Name, b.Name) })
	}
	return attach, detach
}

// volume returns the PersistentVolume behind a pod's volume if it is to be
// attached, or nil.
func (w world) volume(pod *corev1.Pod, v *corev1.Volume) *corev1.PersistentVolume {
	var claim *corev1.PersistentVolumeClaim
	switch {
	case v.PersistentVolumeClaim != nil:
		claim = w.claims[pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName]
	case v.Ephemeral != nil:
		claim = w.claims[pod.Namespace+"/"+pod.Name+"-"+v.Name]
		if claim != nil && !metav1.IsControlledBy(claim, pod) {
			return nil
		}
	}
	if claim == nil || claim.Spec.VolumeName == "" {
		return nil
	}
	pv := w.volumes[claim.Spec.VolumeName]
	if pv == nil || pv.Spec.CSI == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != claim.UID {
		return nil
	}
	// One without a CSIDriver is attached, as upstream has it.
	if d := w.drivers[pv.Spec.CSI.Driver]; d != nil && d.Spec.AttachRequired != nil && !*d.Spec.AttachRequired {
		return nil
	}
	return pv
}

// unused reports whether a node that is there says that it does not use what is
// attached to it. Of one that is not there nobody knows.
func (w world) unused(a *storagev1.VolumeAttachment) bool {
	node := w.nodes[a.Spec.NodeName]
	if node == nil {
		return false
	}
	for _, name := range node.Status.VolumesInUse {
		// kubernetes.io/csi/DRIVER^HANDLE; a driver's name has no ^.
		driver, handle, ok := strings.Cut(strings.TrimPrefix(string(name), "kubernetes.io/csi/"), "^")
		if ok && attachmentName(handle, driver, node.Name) == a.Name {
			return false
		}
	}
	return true
}

func attachmentOf(pv *corev1.PersistentVolume, node string) *storagev1.VolumeAttachment {
	name := pv.Name
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachmentName(pv.Spec.CSI.VolumeHandle, pv.Spec.CSI.Driver, node)},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: pv.Spec.CSI.Driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
		},
	}
}

// attachmentName is the name by which every kubelet looks for the attachment.
func attachmentName(handle, driver, node string) string {
	sum := sha256.Sum256([]byte(handle + driver + node))
	return "csi-" + hex.EncodeToString(sum[:])
}

// terminal reports whether a pod uses nothing of its node any more.
func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
