package binder

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

func testClaim(name, class string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
			Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

func testVolume(name, class, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
			Capacity:   corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
}

func mounts(claims ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, c := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
			}})
		}
	}
}

func boundTo(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = name
		c.Annotations = map[string]string{volume.AnnBindCompleted: "yes"}
	}
}

func TestPlanClaims(t *testing.T) {
	type result struct {
		Why                []string
		Prebind, Provision []string
		Pending            bool
	}
	for _, tc := range []struct {
		name    string
		mounts  []string
		claims  []*corev1.PersistentVolumeClaim
		volumes []*corev1.PersistentVolume
		pods    []*corev1.Pod
		want    result
	}{
		{name: "no claims"},
		{name: "missing", mounts: []string{"a"}, want: result{Why: []string{`persistentvolumeclaim "a" not found`}}},
		{
			name: "bound", mounts: []string{"a"},
			claims:  []*corev1.PersistentVolumeClaim{testClaim("a", "late", boundTo("v"))},
			volumes: []*corev1.PersistentVolume{testVolume("v", "late", "node1")},
		},
		{
			name: "bound to another node's volume", mounts: []string{"a"},
			claims:  []*corev1.PersistentVolumeClaim{testClaim("a", "late", boundTo("v"))},
			volumes: []*corev1.PersistentVolume{testVolume("v", "late", "node2")},
			want:    result{Why: []string{reasonVolumeNode}},
		},
		{
			name: "bound to a volume that is gone", mounts: []string{"a"},
			claims: []*corev1.PersistentVolumeClaim{testClaim("a", "late", boundTo("v"))},
			want:   result{Why: []string{reasonVolumeGone}},
		},
		{
			name: "for one pod only, and in use", mounts: []string{"a"},
			claims: []*corev1.PersistentVolumeClaim{testClaim("a", "late", func(c *corev1.PersistentVolumeClaim) {
				boundTo("v")(c)
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
			})},
			volumes: []*corev1.PersistentVolume{testVolume("v", "late", "node1")},
			pods:    []*corev1.Pod{testPod("other", mounts("a"))},
			want:    result{Why: []string{reasonOncePod}},
		},
		{
			name: "unbound, immediate", mounts: []string{"a"},
			claims: []*corev1.PersistentVolumeClaim{testClaim("a", "now", nil)},
			want:   result{Why: []string{"pod has unbound immediate PersistentVolumeClaims"}},
		},
		{
			name: "waits for its consumer, a volume is here", mounts: []string{"a"},
			claims:  []*corev1.PersistentVolumeClaim{testClaim("a", "late", nil)},
			volumes: []*corev1.PersistentVolume{testVolume("far", "late", "node2"), testVolume("near", "late", "node1")},
			want:    result{Prebind: []string{"near"}, Pending: true},
		},
		{
			name: "two claims get two volumes", mounts: []string{"a", "b"},
			claims:  []*corev1.PersistentVolumeClaim{testClaim("a", "late", nil), testClaim("b", "late", nil)},
			volumes: []*corev1.PersistentVolume{testVolume("v1", "late", "node1"), testVolume("v2", "late", "node1")},
			want:    result{Prebind: []string{"v1", "v2"}, Pending: true},
		},
		{
			name: "two claims, one volume: nothing is taken", mounts: []string{"a", "b"},
			claims:  []*corev1.PersistentVolumeClaim{testClaim("a", "late", nil), testClaim("b", "late", nil)},
			volumes: []*corev1.PersistentVolume{testVolume("v1", "late", "node1")},
			want:    result{Why: []string{reasonNoVolume}},
		},
		{
			name: "nobody provisions", mounts: []string{"a"},
			claims: []*corev1.PersistentVolumeClaim{testClaim("a", "late", nil)},
			want:   result{Why: []string{reasonNoVolume}},
		},
		{
			name: "a provisioner is told the node", mounts: []string{"a"},
			claims: []*corev1.PersistentVolumeClaim{testClaim("a", "made", nil)},
			want:   result{Provision: []string{"a"}, Pending: true},
		},
		{
			name: "a provisioner was told", mounts: []string{"a"},
			claims: []*corev1.PersistentVolumeClaim{testClaim("a", "made", func(c *corev1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{volume.AnnSelectedNode: "node1"}
			})},
			want: result{Pending: true},
		},
		{
			name: "one of several hinders", mounts: []string{"a", "b"},
			claims:  []*corev1.PersistentVolumeClaim{testClaim("a", "late", nil), testClaim("b", "now", nil)},
			volumes: []*corev1.PersistentVolume{testVolume("v1", "late", "node1")},
			want:    result{Why: []string{"pod has unbound immediate PersistentVolumeClaims"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &world{
				node: testNode(nil), pods: tc.pods, volumes: tc.volumes, claims: map[string]*corev1.PersistentVolumeClaim{},
				classes: map[string]bool{"late": true, "made": true}, static: map[string]bool{"late": true},
			}
			for _, c := range tc.claims {
				w.claims[claimKey(c.Namespace, c.Name)] = c
			}
			why, s := planClaims(testPod("pod", mounts(tc.mounts...)), w)
			got := result{Why: why, Pending: s.pending}
			for _, v := range s.prebind {
				if v.Spec.ClaimRef == nil {
					t.Errorf("volume %s names no claim", v.Name)
				}
				got.Prebind = append(got.Prebind, v.Name)
			}
			for _, c := range s.provision {
				got.Provision = append(got.Provision, c.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error("-want +got\n" + diff)
			}
		})
	}
}

// Two pods of one pass must not get the same volume.
func TestPlanClaimsTakesVolumes(t *testing.T) {
	w := &world{
		node:    testNode(nil),
		volumes: []*corev1.PersistentVolume{testVolume("v1", "late", "node1")},
		claims: map[string]*corev1.PersistentVolumeClaim{
			"default/a": testClaim("a", "late", nil), "default/b": testClaim("b", "late", nil),
		},
		classes: map[string]bool{"late": true}, static: map[string]bool{"late": true},
	}
	if why, s := planClaims(testPod("p", mounts("a")), w); len(why) > 0 || len(s.prebind) != 1 {
		t.Fatalf("first pod: %v, %d volumes", why, len(s.prebind))
	}
	why, _ := planClaims(testPod("q", mounts("b")), w)
	if diff := cmp.Diff([]string{reasonNoVolume}, why); diff != "" {
		t.Error("second pod: -want +got\n" + diff)
	}
}
