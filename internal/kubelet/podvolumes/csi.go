package podvolumes

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// CSIPlugin is the name of upstream's plugin for the volumes of CSI drivers.
const CSIPlugin = "kubernetes.io/csi"

// CSIAttributes is what a CSI driver is told of a volume. Secrets are named, not
// held.
type CSIAttributes struct {
	Driver    string
	Handle    string // the driver's name for the volume; of an ephemeral one, made of the pod and its name for it
	Ephemeral bool   // written into the pod itself
	FSType    string
	Context   map[string]string // "attributes" in the API; never changed in place
	// AccessModes are those of the PersistentVolume; none for an ephemeral volume.
	AccessModes []v1.PersistentVolumeAccessMode

	StageSecret, PublishSecret, ExpandSecret *v1.SecretReference // nil: none

	ServiceAccount string // of the pod
}

// CSIUniqueName is how Node.status names the volume of a driver.
func CSIUniqueName(driver, handle string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName(CSIPlugin + "/" + driver + "^" + handle)
}

// AccessMode is the mode in which the volume is asked for: the first of its
// PersistentVolume, as upstream has it.
func (a *CSIAttributes) AccessMode() v1.PersistentVolumeAccessMode {
	if len(a.AccessModes) == 0 {
		return v1.ReadWriteOnce
	}
	return a.AccessModes[0]
}

// CSIAttachment names the VolumeAttachment of a volume to a node, as upstream
// does.
func CSIAttachment(handle, driver, node string) string {
	return "csi-" + digest(handle, driver, node)
}

// digest is upstream's: of all its parts, with nothing between them.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	return hex.EncodeToString(sum[:])
}

// csiInline makes a volume of one that is written into the pod.
func (r resolver) csiInline(out Volume, source *v1.CSIVolumeSource) Volume {
	out.Kind = CSI
	out.CSI = &CSIAttributes{
		Driver: source.Driver, Handle: "csi-" + digest(string(r.pod.UID), r.volume.Name), Ephemeral: true,
		Context: source.VolumeAttributes, ServiceAccount: r.pod.Spec.ServiceAccountName,
	}
	if source.FSType != nil {
		out.CSI.FSType = *source.FSType
	}
	if ref := source.NodePublishSecretRef; ref != nil {
		out.CSI.PublishSecret = &v1.SecretReference{Namespace: r.pod.Namespace, Name: ref.Name}
	}
	out.ReadOnly = source.ReadOnly != nil && *source.ReadOnly
	return out
}

// csiPersistent makes a volume of a PersistentVolume.
func (r resolver) csiPersistent(out Volume, claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) Volume {
	source := pv.Spec.CSI
	out.ID = ID{Kind: CSI, Dir: pv.Name, Block: isBlock(pv)}
	if out.Block {
		out.FSGroup = nil // a device keeps its owner
	}
	if !out.ReadOnly {
		out.GrowTo = growTo(claim, pv)
	}
	if r.host.Attaches == nil || r.host.Attaches(source.Driver) {
		out.InUse = CSIUniqueName(source.Driver, source.VolumeHandle)
	}
	out.MountOptions = pv.Spec.MountOptions
	out.CSI = &CSIAttributes{
		Driver: source.Driver, Handle: source.VolumeHandle, FSType: source.FSType, Context: source.VolumeAttributes,
		AccessModes: pv.Spec.AccessModes, ServiceAccount: r.pod.Spec.ServiceAccountName,
		StageSecret: source.NodeStageSecretRef, PublishSecret: source.NodePublishSecretRef, ExpandSecret: source.NodeExpandSecretRef,
	}
	return out
}

// GroupOfCSI reports whether the volume of a driver that cannot do it itself is
// given to the pod's group, by upstream's rules. policy is that of the CSIDriver
// object.
func GroupOfCSI(policy storagev1.FSGroupPolicy, v *Volume) bool {
	switch {
	case v.FSGroup == nil || v.ReadOnly || policy == storagev1.NoneFSGroupPolicy:
		return false
	case policy == storagev1.FileFSGroupPolicy:
		return true
	case v.CSI.FSType == "":
		return false // it may be shared, and nobody knows what it is
	case v.CSI.Ephemeral:
		return true
	}
	return slices.ContainsFunc(v.CSI.AccessModes, func(mode v1.PersistentVolumeAccessMode) bool {
		return mode == v1.ReadWriteOnce || mode == v1.ReadWriteOncePod
	})
}

// StagedCSI is the name of the folder, below that of the driver, in which a
// volume is staged.
func StagedCSI(handle string) string { return digest(handle) }
