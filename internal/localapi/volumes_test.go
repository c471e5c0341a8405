package localapi

import (
	"context"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testBinding(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "binding")
	pods := client.CoreV1().Pods("binding")
	createPod(t, client, testPod("binding", "free", nil))
	eventually(t, "pod bound", func(ctx context.Context) (bool, error) {
		p, err := pods.Get(ctx, "free", metav1.GetOptions{})
		return err == nil && p.Spec.NodeName == "node1", err
	})
	createPod(t, client, testPod("binding", "picky", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"no": "where"} }))
	eventually(t, "pod told why", func(ctx context.Context) (bool, error) {
		p, err := pods.Get(ctx, "picky", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, "selector") {
				return true, nil
			}
		}
		return false, nil
	})
	eventually(t, "event", func(ctx context.Context) (bool, error) {
		events, err := client.CoreV1().Events("binding").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=picky,reason=FailedScheduling"})
		return err == nil && len(events.Items) == 1, err
	})
}

// A claim gets its volume: at once, or with its first consumer, which may be
// a static pod.
func testClaims(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "claims")
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	_, err := client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &wait,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		claim, class string
		consumer     func(*testing.T)
	}{
		{"now", "", nil},
		{"first", "late", func(t *testing.T) {
			createPod(t, client, testPod("claims", "first", mounting("first")))
		}},
		{"static", "late", func(t *testing.T) {
			createPod(t, clientFor(t, s.KubeletConfig()), testPod("claims", "static", func(p *corev1.Pod) {
				mounting("static")(p)
				p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
				p.Spec.NodeName = "node1"
			}))
		}},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			createVolume(t, s, "claims-"+tc.claim, tc.class)
			_, err := client.CoreV1().PersistentVolumeClaims("claims").Create(t.Context(), &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: tc.claim},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: &tc.class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if tc.consumer != nil {
				tc.consumer(t)
			}
			eventually(t, "claim bound", func(ctx context.Context) (bool, error) {
				c, err := client.CoreV1().PersistentVolumeClaims("claims").Get(ctx, tc.claim, metav1.GetOptions{})
				return err == nil && c.Status.Phase == corev1.ClaimBound, err
			})
		})
	}
	eventually(t, "pod with a claim bound", func(ctx context.Context) (bool, error) {
		p, err := client.CoreV1().Pods("claims").Get(ctx, "first", metav1.GetOptions{})
		return err == nil && p.Spec.NodeName == "node1", err
	})
	// A claim in use stays until its pod is gone.
	if err := client.CoreV1().PersistentVolumeClaims("claims").Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c, err := client.CoreV1().PersistentVolumeClaims("claims").Get(t.Context(), "first", metav1.GetOptions{})
	if err != nil || c.DeletionTimestamp == nil {
		t.Errorf("a claim in use after its deletion: %v, %v", c.DeletionTimestamp, err)
	}
}

// testOwnClaims holds that a generic ephemeral volume gets its claim, which ends
// with its pod.
func testOwnClaims(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "own")
	createVolume(t, s, "own-scratch", "own-class")
	createPod(t, client, testPod("own", "worker", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: new("own-class"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			}},
		}}}}
	}))
	claims := client.CoreV1().PersistentVolumeClaims("own")
	eventually(t, "the pod's claim bound", func(ctx context.Context) (bool, error) {
		c, err := claims.Get(ctx, "worker-scratch", metav1.GetOptions{})
		return err == nil && c.Status.Phase == corev1.ClaimBound && len(c.OwnerReferences) == 1 && c.OwnerReferences[0].Name == "worker", nil
	})
	if err := client.CoreV1().Pods("own").Delete(t.Context(), "worker", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the claim gone with its pod", func(ctx context.Context) (bool, error) {
		_, err := claims.Get(ctx, "worker-scratch", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

// testTrustBundles holds that the node can read what its pods are to trust, and
// ask for their certificates.
func testTrustBundles(t *testing.T, s *Server) {
	client, kubelet := clientFor(t, s.AdminConfig()).CertificatesV1(), clientFor(t, s.KubeletConfig()).CertificatesV1()
	bundle := &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "ours"}, Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: string(s.pki.CertPEM())},
	}
	if _, err := client.ClusterTrustBundles().Create(t.Context(), bundle, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := kubelet.ClusterTrustBundles().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("the node reads %v, %v", list, err)
	}
	if _, err := kubelet.PodCertificateRequests("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=node1,metadata.name=x"}); err != nil {
		t.Errorf("the node reads its requests: %v", err)
	}
	if _, err := kubelet.ClusterTrustBundles().Create(t.Context(), bundle, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the node makes a bundle: %v", err)
	}
}

func mounting(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
	}
}

func createVolume(t *testing.T, s *Server, name, class string) {
	t.Helper()
	_, err := clientFor(t, s.AdminConfig()).CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt/" + name}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"node1"}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
