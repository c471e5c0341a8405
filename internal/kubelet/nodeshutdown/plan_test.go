package nodeshutdown

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/startorder"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// pod returns a static pod of the node n1. "web:100>db" has the priority 100 and
// comes after db.
func pod(text string) *v1.Pod {
	text, after, _ := strings.Cut(text, ">")
	name, priority, has := strings.Cut(text, ":")
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name + "-n1", UID: types.UID(name),
			Annotations: map[string]string{staticpod.SourceAnnotation: staticpod.SourceFile, startorder.Annotation: after},
		},
		Spec: v1.PodSpec{NodeName: "n1"},
	}
	if has {
		p.Spec.Priority = new(int32)
		if _, err := fmt.Sscan(priority, p.Spec.Priority); err != nil {
			panic(err)
		}
	}
	return p
}

func podsOf(texts string) (all []*v1.Pod) {
	for text := range strings.FieldsSeq(texts) {
		all = append(all, pod(text))
	}
	return all
}

// byPriority has periods of 10, 20, 30 and 40 s.
var byPriority = []Period{{0, 10 * time.Second}, {1000, 20 * time.Second}, {100000, 30 * time.Second}, {criticalPriority, 40 * time.Second}}

func TestPlan(t *testing.T) {
	tests := []struct {
		name    string
		periods []Period
		pods    string
		want    []string // of each group: its time, and its waves
	}{
		{"nothing runs", byPriority, "", nil},
		{"two periods", Periods(30*time.Second, 10*time.Second), "a b:2000000000 c:2000001000 d:5", []string{"20s a d", "10s b c"}},
		{"groups without pods are left out", byPriority, "a:1000", []string{"20s a"}},
		{"a bound belongs to the higher one", byPriority, "a:999 b:1000 c:1001 d:99999 e:100000", []string{"10s a", "20s b c d", "30s e"}},
		{"below all of them", byPriority, "a:-5 b", []string{"10s a b"}},
		{"above all of them", byPriority[:2], "a:5000", []string{"20s a"}},
		{"one period", byPriority[3:], "a b:2000001000", []string{"40s a b"}},
		{"what comes after others ends first", byPriority, "db app>db web>app,db other", []string{"10s web other | app | db"}},
		{"what others lean on ends with the most important of them", byPriority, "db web:100000>db low", []string{"10s low", "30s web | db"}},
		{"in a group the priority does not count", byPriority, "a:5 b:500", []string{"10s a b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, g := range plan(tt.periods, podsOf(tt.pods)) {
				var waves []string
				for _, w := range g.waves {
					var names []string
					for _, p := range w {
						names = append(names, string(p.UID))
					}
					waves = append(waves, strings.Join(names, " "))
				}
				got = append(got, g.Grace.String()+" "+strings.Join(waves, " | "))
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
		})
	}
}

func TestPeriods(t *testing.T) {
	s := time.Second
	for _, tt := range []struct {
		total, critical time.Duration
		want            []Period
	}{
		{0, 0, nil},
		{30 * s, 0, []Period{{0, 30 * s}, {criticalPriority, 0}}},
		{30 * s, 10 * s, []Period{{0, 20 * s}, {criticalPriority, 10 * s}}},
		{30500 * time.Millisecond, 10 * s, []Period{{0, 20 * s}, {criticalPriority, 10 * s}}},
	} {
		if diff := cmp.Diff(Periods(tt.total, tt.critical), tt.want); diff != "" {
			t.Errorf("%v, %v: got -, want +:\n%s", tt.total, tt.critical, diff)
		}
	}
}

func TestGrace(t *testing.T) {
	for _, tt := range []struct {
		own  *int64
		left time.Duration
		want int64
	}{
		{nil, 9999 * time.Millisecond, 10},
		{new(int64(30)), 10 * time.Second, 10},
		{new(int64(5)), 10 * time.Second, 5},
		{new(int64(5)), -time.Second, 0},
	} {
		p := pod("a")
		p.Spec.TerminationGracePeriodSeconds = tt.own
		if got := grace(p, tt.left); got != tt.want {
			t.Errorf("%v of %v: got %d, want %d", tt.own, tt.left, got, tt.want)
		}
	}
}
