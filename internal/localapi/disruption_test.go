package localapi

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A budget stops an eviction as long as too few pods are ready, and lets it
// pass after that; without one, evictions pass.
func testEviction(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "evict")
	pods := client.CoreV1().Pods("evict")
	evict := func(name string) error {
		return pods.EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "evict", Name: name}})
	}
	// Bound by hand, as this server has no kubelet: it may wait for its node.
	running := func(name string, ready corev1.ConditionStatus) {
		t.Helper()
		pod := createPod(t, client, testPod("evict", name, func(p *corev1.Pod) {
			p.Spec.NodeName, p.Labels = "node1", map[string]string{"app": "web"}
		}))
		setReady(t, s, pod, ready)
	}
	running("first", corev1.ConditionTrue)
	running("second", corev1.ConditionFalse)
	running("alone", corev1.ConditionTrue)
	if _, err := pods.Patch(t.Context(), "alone", "application/merge-patch+json", []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := evict("alone"); err != nil {
		t.Errorf("without a budget: %v", err)
	}

	budgets := client.PolicyV1().PodDisruptionBudgets("evict")
	_, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	allowed := func(want int32) {
		t.Helper()
		eventually(t, "the budget is counted", func(ctx context.Context) (bool, error) {
			b, err := budgets.Get(ctx, "web", metav1.GetOptions{})
			return err == nil && b.Status.ObservedGeneration == b.Generation && b.Status.ExpectedPods == 2 && b.Status.DisruptionsAllowed == want, err
		})
	}
	allowed(0)
	if err := evict("first"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got %v, want that it is refused for now", err)
	}
	second, err := pods.Get(t.Context(), "second", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	setReady(t, s, second, corev1.ConditionTrue)
	allowed(1)
	if err := evict("first"); err != nil {
		t.Errorf("with one to spare: %v", err)
	}
}

// setReady says what the kubelet would of a pod that runs.
func setReady(t *testing.T, s *Server, pod *corev1.Pod, ready corev1.ConditionStatus) {
	t.Helper()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	if _, err := clientFor(t, s.KubeletConfig()).CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
