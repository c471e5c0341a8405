package staticpod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPriority(t *testing.T) {
	const node, cluster = 2000001000, 2000000000
	tests := []struct {
		name, class string
		written     *int32
		want        *int32
		warning     string // its beginning; "" for none
	}{
		{"neither", "", nil, nil, ""},
		{"the node's class", "system-node-critical", nil, new(int32(node)), ""},
		{"the cluster's class", "system-cluster-critical", nil, new(int32(cluster)), ""},
		{"a class and its value", "system-node-critical", new(int32(node)), new(int32(node)), ""},
		{"a class and another value", "system-node-critical", new(int32(7)), new(int32(7)), "spec.priority 7 counts on this node alone: class system-node-critical is 2000001000"},
		{"a value without a class", "", new(int32(7)), new(int32(7)), "spec.priority 7 counts on this node alone: without spec.priorityClassName"},
		{"a class without a value", "mine", nil, nil, `spec.priorityClassName "mine" has no value`},
		{"a class of the user and a value", "mine", new(int32(7)), new(int32(7)), "spec.priority 7 counts on this node alone: the API refuses the mirror unless"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"}, Spec: corev1.PodSpec{PriorityClassName: tt.class, Priority: tt.written}}
			got, err := New(p, nil, "n1", SourceFile)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := got.Spec.Priority, tt.want; (got == nil) != (want == nil) || got != nil && *got != *want {
				t.Errorf("priority: got %v, want %v", got, want)
			}
			if got := PriorityWarning(p); (got == "") != (tt.warning == "") || !strings.HasPrefix(got, tt.warning) {
				t.Errorf("warning: got %q, want %q", got, tt.warning)
			}
		})
	}
}
