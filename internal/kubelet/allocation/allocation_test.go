package allocation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func cpu(s string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(s)}}
}

// pod makes a pod of a sidecar and two containers, with resources of its own.
func pod(whole, side, a, b string) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{
		Resources:      new(cpu(whole)),
		InitContainers: []v1.Container{{Name: "side", Resources: cpu(side)}},
		Containers:     []v1.Container{{Name: "a", Image: "i", Resources: cpu(a)}, {Name: "b", Resources: cpu(b)}},
	}}
}

func TestKeep(t *testing.T) {
	started := pod("1", "1", "1", "1")
	tests := []struct {
		name    string
		now     *v1.Pod
		differs bool
	}{
		{"the same", pod("1", "1", "1", "1"), false},
		{"the same in other words", pod("1000m", "1", "1", "1"), false},
		{"pod", pod("2", "1", "1", "1"), true},
		{"sidecar", pod("1", "2", "1", "1"), true},
		{"container", pod("1", "1", "1", "500m"), true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.now.Labels = map[string]string{"new": "label"}
			before := test.now.DeepCopy()
			if got := Differs(test.now, started); got != test.differs {
				t.Errorf("Differs = %v", got)
			}
			kept := Keep(test.now, started)
			if Differs(kept, started) || kept.Labels["new"] != "label" || kept.Spec.Containers[0].Image != "i" {
				t.Errorf("kept %+v", kept)
			}
			if diff := cmp.Diff(test.now, before); diff != "" {
				t.Errorf("the pod was changed:\n%s", diff)
			}
		})
	}
}

func TestFromStatus(t *testing.T) {
	now := pod("2", "2", "2", "2")
	now.Status.Resources = new(cpu("1"))
	now.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "side", Resources: new(cpu("1"))}}
	now.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "b"}, {Name: "a", Resources: new(cpu("1"))}}
	before := now.DeepCopy()
	if got, want := FromStatus(now), pod("1", "1", "1", "2"); Differs(got, want) {
		t.Errorf("got %+v", got.Spec)
	}
	if diff := cmp.Diff(now, before); diff != "" {
		t.Errorf("the pod was changed:\n%s", diff)
	}
}
