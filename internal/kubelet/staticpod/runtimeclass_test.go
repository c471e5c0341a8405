package staticpod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestApplyRuntimeClass(t *testing.T) {
	memory := func(s string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(s)}
	}
	gpu := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}
	slow := corev1.Toleration{Key: "slow", Operator: corev1.TolerationOpExists}
	zone := func(values ...string) *corev1.Affinity {
		var terms []corev1.NodeSelectorTerm
		for _, v := range values {
			terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{v}}}})
		}
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	tests := map[string]struct {
		pod   corev1.PodSpec
		class nodev1.RuntimeClass
		want  corev1.PodSpec
	}{
		"nothing": {},
		"overhead": {
			class: nodev1.RuntimeClass{Overhead: &nodev1.Overhead{PodFixed: memory("64Mi")}},
			want:  corev1.PodSpec{Overhead: memory("64Mi")},
		},
		"overhead that the pod writes": {
			pod:   corev1.PodSpec{Overhead: memory("1Gi")},
			class: nodev1.RuntimeClass{Overhead: &nodev1.Overhead{PodFixed: memory("64Mi")}},
			want:  corev1.PodSpec{Overhead: memory("1Gi")},
		},
		"scheduling": {
			class: nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"zone": "a"}, Tolerations: []corev1.Toleration{gpu}}},
			want:  corev1.PodSpec{NodeSelector: map[string]string{"zone": "a"}, Tolerations: []corev1.Toleration{gpu}},
		},
		"scheduling beside the pod's own": {
			pod:   corev1.PodSpec{NodeSelector: map[string]string{"disk": "fast", "zone": "a"}, Tolerations: []corev1.Toleration{slow, gpu}},
			class: nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"zone": "a", "cpu": "big"}, Tolerations: []corev1.Toleration{gpu}}},
			want:  corev1.PodSpec{NodeSelector: map[string]string{"disk": "fast", "zone": "a", "cpu": "big"}, Tolerations: []corev1.Toleration{slow, gpu}},
		},
		"conflict": {
			pod:   corev1.PodSpec{NodeSelector: map[string]string{"zone": "b"}},
			class: nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"zone": "a"}}},
			want:  corev1.PodSpec{NodeSelector: map[string]string{"zone": "b"}, Affinity: zone("a")},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod, before := &corev1.Pod{Spec: test.pod}, test.class.DeepCopy()
			ApplyRuntimeClass(pod, &test.class)
			if diff := cmp.Diff(pod.Spec, test.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
			if diff := cmp.Diff(&test.class, before); diff != "" {
				t.Errorf("the class was changed:\n%s", diff)
			}
		})
	}
}

// A pod that may run in one of two places, and whose class wants a third, may
// run in none.
func TestConflictInEveryTerm(t *testing.T) {
	in := func(key, value string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"zone": "b"},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{in("disk", "fast")}}, {MatchExpressions: []corev1.NodeSelectorRequirement{in("disk", "slow")}},
		}}}},
	}}
	ApplyRuntimeClass(pod, &nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"zone": "a"}}})
	want := []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{in("disk", "fast"), in("zone", "a")}},
		{MatchExpressions: []corev1.NodeSelectorRequirement{in("disk", "slow"), in("zone", "a")}},
	}
	if diff := cmp.Diff(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}
