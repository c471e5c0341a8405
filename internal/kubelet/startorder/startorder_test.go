package startorder

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// pod returns a static pod of the node n1 that comes after others.
func pod(name, after string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name + "-n1", UID: types.UID(name),
			Annotations: map[string]string{staticpod.SourceAnnotation: staticpod.SourceFile, Annotation: after},
		},
		Spec: v1.PodSpec{NodeName: "n1"},
	}
}

func withPriority(p *v1.Pod, priority int32) *v1.Pod {
	p.Spec.Priority = &priority
	return p
}

func ready(status v1.ConditionStatus, message string) v1.PodStatus {
	return v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: status, Message: message}}}
}

func TestWaits(t *testing.T) {
	statuses := map[types.UID]v1.PodStatus{
		"db":    ready(v1.ConditionTrue, ""),
		"cache": ready(v1.ConditionFalse, "containers with unready status: [app]"),
		"job":   {Phase: v1.PodSucceeded},
	}
	static := map[string]*v1.Pod{}
	for _, p := range []*v1.Pod{pod("db", ""), pod("cache", "db"), pod("job", ""), pod("new", ""), pod("a", "b"), pod("b", "a"), pod("self", "self"), pod("late", "a")} {
		static[fullName(p)] = p
	}
	other := pod("db", "")
	other.Namespace, other.UID = "data", "other"
	static[fullName(other)] = other

	api := pod("api", "cache")
	api.Annotations[staticpod.SourceAnnotation] = staticpod.SourceAPI
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"no order":          {pod("web", ""), ""},
		"it is ready":       {pod("web", " db ,"), ""},
		"it is not":         {pod("web", "db,cache"), "waits for default/cache, which is not ready: containers with unready status: [app]"},
		"nothing known":     {pod("web", "new"), "waits for default/new, which is not ready: it has not started"},
		"another namespace": {pod("web", "data/db"), "waits for data/db, which is not ready: it has not started"},
		"it has ended":      {pod("web", "job"), "waits for default/job, which is not ready: it has ended (Succeeded), and a pod that has ended is never ready"},
		"no such pod":       {pod("web", "dbb,db"), "waits for default/dbb, and no manifest has a pod of that name"},
		"two reasons":       {pod("web", "dbb,new"), "waits for default/dbb, and no manifest has a pod of that name; waits for default/new, which is not ready: it has not started"},
		"itself":            {pod("self", "self"), "waits for itself: default/self after default/self; take holdfast.dev/after out of one of them"},
		"a circle":          {pod("a", "b"), "waits for itself: default/a after default/b after default/a; take holdfast.dev/after out of one of them"},
		"after a circle":    {pod("late", "a"), "waits for default/a, which is not ready: it has not started"},
		"a pod of the API":  {api, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Waits(test.pod, static, func(uid types.UID) (v1.PodStatus, bool) { s, ok := statuses[uid]; return s, ok })
			if got.Why != test.want {
				t.Errorf("got %q\nwant %q", got.Why, test.want)
			}
			if want := strings.Contains(test.want, "no manifest") || strings.Contains(test.want, "for itself"); got.Wrong != want {
				t.Errorf("wrong: got %v, want %v", got.Wrong, want)
			}
		})
	}
}

func TestStops(t *testing.T) {
	for name, test := range map[string]struct {
		pods []*v1.Pod
		want [][]string
	}{
		"none":     {nil, nil},
		"no order": {[]*v1.Pod{pod("a", ""), pod("b", "")}, [][]string{{"a", "b"}}},
		"a chain":  {[]*v1.Pod{pod("db", ""), pod("app", "db"), pod("web", "app,db")}, [][]string{{"web"}, {"app"}, {"db"}}},
		"by priority": {
			[]*v1.Pod{withPriority(pod("high", ""), 100), pod("low", "")}, [][]string{{"low"}, {"high"}},
		},
		"the order before the priority": {
			[]*v1.Pod{pod("db", ""), withPriority(pod("web", "db"), 100), pod("low", "")}, [][]string{{"low"}, {"web"}, {"db"}},
		},
		"a circle":    {[]*v1.Pod{pod("a", "b"), pod("b", "a"), pod("c", "")}, [][]string{{"a", "b", "c"}}},
		"not with us": {[]*v1.Pod{pod("web", "db")}, [][]string{{"web"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got [][]string
			for _, group := range Stops(test.pods) {
				var names []string
				for _, p := range group {
					names = append(names, string(p.UID))
				}
				got = append(got, names)
			}
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	for after, want := range map[string]string{
		"":            "",
		"db, data/db": "",
		"data/web":    "",
		"db web":      `"db web" is no pod: write its name, or namespace/name`,
		"a/b/c":       `"a/b/c" is no pod: write its name, or namespace/name`,
		"db,web":      "the pod would wait for itself",
	} {
		written := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{Annotation: after}}}
		if got := Check(written, "default"); got != want {
			t.Errorf("%q: got %q, want %q", after, got, want)
		}
	}
}
