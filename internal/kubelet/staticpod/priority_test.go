package staticpod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPriority(t *testing.T) {
	const node, cluster = 2000001000, 2000000000
	class := func(name string, value int32, isDefault bool) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault, PreemptionPolicy: new(corev1.PreemptNever),
		}
	}
	mine := []*schedulingv1.PriorityClass{class("other", 1, false), class("mine", 50, false)}
	tests := []struct {
		name, class string
		written     *int32
		want        *int32
		warning     string // its beginning; "" for none
		among       []*schedulingv1.PriorityClass
	}{
		{"neither", "", nil, nil, "", nil},
		{"the node's class", "system-node-critical", nil, new(int32(node)), "", nil},
		{"the cluster's class", "system-cluster-critical", nil, new(int32(cluster)), "", nil},
		{"a class and its value", "system-node-critical", new(int32(node)), new(int32(node)), "", nil},
		{"a class and another value", "system-node-critical", new(int32(7)), new(int32(7)), "spec.priority 7 counts on this node alone: class system-node-critical is 2000001000", nil},
		{"a value without a class", "", new(int32(7)), new(int32(7)), "spec.priority 7 counts on this node alone: without spec.priorityClassName", nil},
		{"a class without a value", "mine", nil, nil, `spec.priorityClassName "mine" has no value`, nil},
		{"a class of the user and a value", "mine", new(int32(7)), new(int32(7)), "spec.priority 7 counts on this node alone: the API refuses the mirror unless", nil},
		{"a class that is known", "mine", nil, new(int32(50)), "", mine},
		{"a class that is known, and its value", "mine", new(int32(50)), new(int32(50)), "", mine},
		{"a class that is known, and another value", "mine", new(int32(7)), new(int32(7)), "spec.priority 7 counts on this node alone: class mine is 50", mine},
		{"the default class", "", nil, new(int32(10)), "", []*schedulingv1.PriorityClass{class("high", 20, true), class("low", 10, true), class("lower", 5, false)}},
		{"a priority, and no default class", "", new(int32(7)), new(int32(7)), "spec.priority 7 counts on this node alone: without", []*schedulingv1.PriorityClass{class("low", 10, true)}},
		{"the node's class, and a default one", "system-node-critical", nil, new(int32(node)), "", []*schedulingv1.PriorityClass{class("low", 10, true)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"}, Spec: corev1.PodSpec{PriorityClassName: tt.class, Priority: tt.written}}
			got, err := New(p, nil, "n1", SourceFile)
			if err != nil {
				t.Fatal(err)
			}
			ApplyPriorityClass(got, tt.among)
			if adds := tt.among != nil && tt.class != "system-node-critical" && (tt.class != "" || tt.written == nil); adds != (got.Spec.PreemptionPolicy != nil) {
				t.Errorf("preemption policy: got %v", got.Spec.PreemptionPolicy)
			}
			if got, want := got.Spec.Priority, tt.want; (got == nil) != (want == nil) || got != nil && *got != *want {
				t.Errorf("priority: got %v, want %v", got, want)
			}
			if got := PriorityWarning(p, tt.among); (got == "") != (tt.warning == "") || !strings.HasPrefix(got, tt.warning) {
				t.Errorf("warning: got %q, want %q", got, tt.warning)
			}
		})
	}
}
