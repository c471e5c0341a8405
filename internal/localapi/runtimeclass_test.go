package localapi

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a runtime class does to pods is upstream's own code; that it is asked,
// and that the kubelet may read classes, is ours.
func testRuntimeClasses(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "runtimeclasses")
	memory := func(s string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(s)}
	}
	gpu := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}
	for _, class := range []*nodev1.RuntimeClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Handler: "runc"},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "heavy"}, Handler: "runc",
			Overhead:   &nodev1.Overhead{PodFixed: memory("64Mi")},
			Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"disk": "fast"}, Tolerations: []corev1.Toleration{gpu}},
		},
	} {
		if _, err := client.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := clientFor(t, s.KubeletConfig()).NodeV1().RuntimeClasses().Get(t.Context(), class.Name, metav1.GetOptions{}); err != nil {
			t.Errorf("the kubelet: %v", err)
		}
	}
	for name, test := range map[string]struct {
		change func(*corev1.PodSpec)
		refuse string // part of the API's answer
	}{
		"plain":            {change: func(p *corev1.PodSpec) { p.RuntimeClassName = new("plain") }},
		"heavy":            {change: func(p *corev1.PodSpec) { p.RuntimeClassName = new("heavy") }},
		"missing":          {func(p *corev1.PodSpec) { p.RuntimeClassName = new("none") }, `pod rejected: RuntimeClass "none" not found`},
		"overhead-alone":   {func(p *corev1.PodSpec) { p.Overhead = memory("1Mi") }, "Pod Overhead set without corresponding RuntimeClass defined Overhead"},
		"another-overhead": {func(p *corev1.PodSpec) { p.RuntimeClassName, p.Overhead = new("heavy"), memory("1Mi") }, "Pod's Overhead doesn't match RuntimeClass's defined Overhead"},
		"another-selector": {func(p *corev1.PodSpec) {
			p.RuntimeClassName, p.NodeSelector = new("heavy"), map[string]string{"disk": "slow"}
		}, "conflict: runtimeClass.scheduling.nodeSelector[disk] = fast"},
		"overhead-as-stated": {change: func(p *corev1.PodSpec) { p.RuntimeClassName, p.Overhead = new("heavy"), memory("64Mi") }},
	} {
		pod := testPod("runtimeclasses", name, func(p *corev1.Pod) { test.change(&p.Spec) })
		made, err := client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		if test.refuse != "" {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.refuse) {
				t.Errorf("%s: got %v, want %q", name, err, test.refuse)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := ""
		if *pod.Spec.RuntimeClassName == "heavy" {
			want = "64Mi"
			if made.Spec.NodeSelector["disk"] != "fast" || made.Spec.Tolerations[0].Key != "gpu" {
				t.Errorf("%s: selector %v, tolerations %v", name, made.Spec.NodeSelector, made.Spec.Tolerations)
			}
		}
		if got := made.Spec.Overhead; len(got) > 0 != (want != "") || want != "" && got.Memory().String() != want {
			t.Errorf("%s: overhead %v, want %s", name, got, want)
		}
	}
}
