package podvolumes

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Names that upstream computes too, so that both find the same.
func TestCSINames(t *testing.T) {
	if got, want := CSIAttachment("a", "b", "c"), "csi-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; got != want {
		t.Errorf("attachment %s, want %s", got, want) // the digest of "abc" in FIPS 180-2
	}
	if got, want := StagedCSI("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; got != want {
		t.Errorf("staged at %s, want %s", got, want)
	}
	if got, want := CSIUniqueName("d", "h/x"), v1.UniqueVolumeName("kubernetes.io/csi/d^h/x"); got != want {
		t.Errorf("unique name %s, want %s", got, want)
	}
}

func TestResolveCSI(t *testing.T) {
	secret := &v1.SecretReference{Namespace: "s", Name: "n"}
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "claim"}}
	claim.Spec.VolumeName, claim.Status.Phase = "pv", v1.ClaimBound
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.ClaimRef, pv.Spec.AccessModes = &v1.ObjectReference{UID: "claim"}, []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	pv.Spec.MountOptions = []string{"noatime"}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{
		Driver: "d", VolumeHandle: "h", FSType: "xfs", VolumeAttributes: map[string]string{"k": "v"},
		NodeStageSecretRef: secret, NodePublishSecretRef: secret, NodeExpandSecretRef: secret,
	}
	p := pod(func(p *v1.Pod) { p.Spec.ServiceAccountName = "sa" })
	rawClaim, rawPV := claim.DeepCopy(), pv.DeepCopy()
	rawClaim.Name, rawClaim.UID, rawClaim.Spec.VolumeName = "raw", "raw", "raw"
	rawPV.Name, rawPV.Spec.ClaimRef.UID, rawPV.Spec.MountOptions, rawPV.Spec.VolumeMode = "raw", "raw", nil, new(v1.PersistentVolumeBlock)
	objects := api{"PersistentVolumeClaim ns/c": claim, "PersistentVolume pv": pv, "PersistentVolumeClaim ns/raw": rawClaim, "PersistentVolume raw": rawPV}
	none := func(string) bool { return false }
	for _, tt := range []struct {
		name   string
		source v1.VolumeSource
		host   Host
		want   Volume
	}{
		{
			"of a claim",
			v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}},
			Host{},
			Volume{ID: ID{Kind: CSI, Dir: "pv"}, MountOptions: []string{"noatime"}, InUse: "kubernetes.io/csi/d^h", CSI: &CSIAttributes{
				Driver: "d", Handle: "h", FSType: "xfs", Context: map[string]string{"k": "v"}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				StageSecret: secret, PublishSecret: secret, ExpandSecret: secret,
			}},
		}, {
			"of a claim, never attached, read-only",
			v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: true}},
			Host{Attaches: none},
			Volume{ID: ID{Kind: CSI, Dir: "pv"}, MountOptions: []string{"noatime"}, ReadOnly: true, CSI: &CSIAttributes{
				Driver: "d", Handle: "h", FSType: "xfs", Context: map[string]string{"k": "v"}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				StageSecret: secret, PublishSecret: secret, ExpandSecret: secret,
			}},
		}, {
			"a device",
			v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "raw"}},
			Host{Attaches: none},
			Volume{ID: ID{Kind: CSI, Dir: "raw", Block: true}, CSI: &CSIAttributes{
				Driver: "d", Handle: "h", FSType: "xfs", Context: map[string]string{"k": "v"}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				StageSecret: secret, PublishSecret: secret, ExpandSecret: secret,
			}},
		}, {
			"inline",
			v1.VolumeSource{CSI: &v1.CSIVolumeSource{
				Driver: "d", FSType: new("ext4"), ReadOnly: new(true), VolumeAttributes: map[string]string{"k": "v"}, NodePublishSecretRef: &v1.LocalObjectReference{Name: "n"},
			}},
			Host{},
			Volume{ID: ID{Kind: CSI, Dir: "v"}, ReadOnly: true, CSI: &CSIAttributes{
				Driver: "d", Handle: "csi-" + digest(string(p.UID)+"v"), Ephemeral: true, FSType: "ext4", Context: map[string]string{"k": "v"},
				PublishSecret: &v1.SecretReference{Namespace: "ns", Name: "n"},
			}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Resolve(t.Context(), p, &v1.Volume{Name: "v", VolumeSource: tt.source}, objects, tt.host)
			got.Claim, got.PV = nil, nil
			tt.want.Name, tt.want.PodUID = "v", p.UID
			tt.want.Pod, tt.want.CSI.ServiceAccount = types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, "sa"
			if diff := cmp.Diff(got, tt.want); err != nil || diff != "" {
				t.Errorf("%v (-got +want):\n%s", err, diff)
			}
		})
	}
}

// Upstream's rules of who is given to the pod's group.
func TestGroupOfCSI(t *testing.T) {
	const byType = storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	once := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	for _, tt := range []struct {
		name   string
		policy storagev1.FSGroupPolicy
		change func(*Volume)
		want   bool
	}{
		{"a disk", byType, nil, true},
		{"for one pod", byType, func(v *Volume) { v.CSI.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod} }, true},
		{"no group", byType, func(v *Volume) { v.FSGroup = nil }, false},
		{"read-only", storagev1.FileFSGroupPolicy, func(v *Volume) { v.ReadOnly = true }, false},
		{"the driver wants none", storagev1.NoneFSGroupPolicy, nil, false},
		{"shared", byType, func(v *Volume) { v.CSI.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany} }, false},
		{"shared, and the driver wants it", storagev1.FileFSGroupPolicy, func(v *Volume) { v.CSI.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany} }, true},
		{"no filesystem named", byType, func(v *Volume) { v.CSI.FSType = "" }, false},
		{"no filesystem named, and the driver wants it", storagev1.FileFSGroupPolicy, func(v *Volume) { v.CSI.FSType = "" }, true},
		{"inline", byType, func(v *Volume) { v.CSI.Ephemeral, v.CSI.AccessModes = true, nil }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := &Volume{FSGroup: new(int64(1)), CSI: &CSIAttributes{FSType: "ext4", AccessModes: once}}
			if tt.change != nil {
				tt.change(v)
			}
			if got := GroupOfCSI(tt.policy, v); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
