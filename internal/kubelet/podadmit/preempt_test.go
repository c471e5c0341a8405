package podadmit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// sized makes a pod of "name class cpu memory", such as "web burst 500m 64Mi"; the
// class of quality is best, burst or sure. More words: priority=N, static.
func sized(t *testing.T, text string) *v1.Pod {
	t.Helper()
	words := strings.Fields(text)
	p := newPod(words[0], nil)
	rest := words[2:]
	if words[1] != "best" {
		c := &p.Spec.Containers[0]
		c.Resources.Requests = requests("cpu", words[2], "memory", words[3])
		if words[1] == "sure" {
			c.Resources.Limits = c.Resources.Requests
		}
		rest = words[4:]
	}
	for _, word := range rest {
		if number, ok := strings.CutPrefix(word, "priority="); ok {
			p.Spec.Priority = new(int32)
			if _, err := fmt.Sscan(number, p.Spec.Priority); err != nil {
				t.Fatal(err)
			}
		} else if word == "static" {
			p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		}
	}
	return p
}

// TestAdmitOrPreempt holds who ends for a critical pod on a node of 2 CPUs, 4 GiB
// and 4 pods.
func TestAdmitOrPreempt(t *testing.T) {
	const critical = "priority=2000000000"
	no := func(lack string) string {
		return "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: preemption: " +
			"error finding a set of pods to preempt: no set of running pods found to reclaim resources: " + lack
	}
	tests := []struct {
		name   string
		pod    string
		others []string
		want   string // who ends, and what was lacking; or why it is not taken
	}{
		{"it fits", "p burst 1 1Gi " + critical, []string{"a burst 1 1Gi"}, ""},
		{"not critical", "p burst 1500m 1Gi priority=1999999999", []string{"a burst 1 1Gi"}, "OutOfcpu: Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000"},
		{"one makes room", "p burst 1500m 1Gi " + critical, []string{"a burst 1 1Gi"}, "a: cpu"},
		{"static is critical", "p burst 1500m 1Gi static", []string{"a burst 1 1Gi"}, "a: cpu"},
		{"critical ones stay", "p burst 1500m 1Gi " + critical, []string{"a burst 1 1Gi " + critical}, no("[(res: cpu, q: 500), ]")},
		{"static ones stay", "p burst 1500m 1Gi static", []string{"a burst 1 1Gi static"}, no("[(res: cpu, q: 500), ]")},
		{"a higher priority counts among critical ones", "p burst 1500m 1Gi priority=2000001000", []string{"a burst 1 1Gi " + critical}, "a: cpu"},
		{"among static ones too, where both have one", "p burst 1500m 1Gi static priority=2000001000", []string{"a burst 1 1Gi static priority=5", "b burst 200m 1Gi static"}, "a: cpu"},
		{"no more than what gives enough", "p burst 1500m 1Gi " + critical, []string{"a burst 400m 64Mi", "b burst 700m 64Mi", "c burst 800m 64Mi"}, "c b: cpu"},
		{"what is closest to it", "p burst 1 1Gi " + critical, []string{"a burst 300m 64Mi", "b burst 700m 64Mi", "c burst 400m 64Mi"}, "c: cpu"},
		{"burstable before guaranteed", "p burst 1 1Gi " + critical, []string{"a sure 1 1Gi", "b burst 1 1Gi"}, "b: cpu"},
		{"guaranteed if others are not enough", "p burst 1800m 1Gi " + critical, []string{"a sure 1 1Gi", "b burst 1 1Gi"}, "b a: cpu"},
		{"best effort gives no CPU", "p burst 1500m 1Gi " + critical, []string{"a best", "b burst 1 1Gi"}, "b: cpu"},
		{"best effort gives its place", "p burst 1 1Gi " + critical, []string{"a best", "b burst 100m 1Gi", "c best priority=5", "d sure 100m 64Mi"}, "a: pods"},
		{"several resources", "p burst 1500m 3Gi " + critical, []string{"a burst 1 64Mi", "b burst 100m 2Gi", "c burst 100m 64Mi"}, "b a: cpu"},
		{"the smaller of two that would do", "p burst 1 1Gi " + critical, []string{"a burst 1 2Gi", "b burst 1 1Gi"}, "b: cpu"},
		{"the less important of two alike", "p burst 1 1Gi " + critical, []string{"a burst 1 1Gi priority=7", "b burst 1 1Gi"}, "b: cpu"},
		{"all are not enough", "p burst 3 1Gi " + critical, []string{"a burst 1 1Gi"}, no("[(res: cpu, q: 2000), ]")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var others []*v1.Pod
			for _, text := range tt.others {
				others = append(others, sized(t, text))
			}
			n := Node{Node: &v1.Node{}, Features: Features{}}
			n.Node.Name = "n"
			n.Node.Status.Allocatable = requests("cpu", "2", "memory", "4Gi", "pods", "4")
			room, refusal := AdmitOrPreempt(n, sized(t, tt.pod), others)
			got := ""
			if refusal != nil {
				got = refusal.Reason + ": " + refusal.Message
			}
			if room != nil {
				if refusal == nil || !strings.HasPrefix(refusal.Reason, reasonOutOf) {
					t.Errorf("refusal for now: %v", refusal)
				}
				var names []string
				for _, p := range room.End {
					names = append(names, p.Name)
				}
				got = strings.Join(names, " ") + ": " + string(room.Lack)
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
		})
	}
}

// TestNoRoomForTheWrongNode holds that nobody ends for a pod that is not taken
// anyway, and that that is why it is not.
func TestNoRoomForTheWrongNode(t *testing.T) {
	n := Node{Node: &v1.Node{}}
	n.Node.Status.Allocatable = requests("cpu", "2", "memory", "4Gi", "pods", "4")
	p := sized(t, "p burst 1500m 1Gi priority=2000000000")
	p.Spec.NodeSelector = map[string]string{"disk": "fast"}
	room, refusal := AdmitOrPreempt(n, p, []*v1.Pod{sized(t, "a burst 1 1Gi")})
	if room != nil || refusal == nil || refusal.Reason != "NodeAffinity" {
		t.Errorf("got %v, %v", room, refusal)
	}
}

// TestPreemptionInAnyOrder holds that it does not matter in which order the pods
// that are here are looked at.
func TestPreemptionInAnyOrder(t *testing.T) {
	n := Node{Node: &v1.Node{}}
	n.Node.Status.Allocatable = requests("cpu", "2", "memory", "4Gi", "pods", "10")
	var others []*v1.Pod
	for _, name := range []string{"a", "b", "c", "d"} {
		others = append(others, sized(t, name+" burst 500m 64Mi"))
	}
	first, _ := AdmitOrPreempt(n, sized(t, "p burst 900m 64Mi static"), others)
	slices.Reverse(others)
	second, _ := AdmitOrPreempt(n, sized(t, "p burst 900m 64Mi static"), others)
	if diff := cmp.Diff(first, second); diff != "" || len(first.End) != 2 {
		t.Errorf("first %v, second:\n%s", first, diff)
	}
}
