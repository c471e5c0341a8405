package desired

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// pod makes a pod `name` or `name/uid`; without a UID, that is its name.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	name, uid, ok := strings.Cut(name, "/")
	if !ok {
		uid = name
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func image(ref string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Image = ref }
}

func annotation(name, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, name, value) }
}

func label(p *corev1.Pod)   { p.Labels = map[string]string{"a": "b"} }
func running(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }
func deleted(p *corev1.Pod) { t := metav1.NewTime(now); p.DeletionTimestamp = &t }
func grace(s int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = &s }
}

func irrelevant(p *corev1.Pod) {
	p.ResourceVersion = "7"
	p.Finalizers = []string{"x.example/y"}
	p.OwnerReferences = []metav1.OwnerReference{{Name: "o"}}
	p.Generation = 3
}

// show writes updates as `file ADD a b`.
func show(updates []Update) []string {
	var lines []string
	for _, u := range updates {
		words := []string{u.Source, u.Op.String()}
		for _, p := range u.Pods {
			word := p.Name
			if string(p.UID) != p.Name {
				word += "/" + string(p.UID)
			}
			words = append(words, word)
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return lines
}

func TestMerge(t *testing.T) {
	type step struct {
		source string
		pods   []*corev1.Pod
		want   []string
	}
	set := func(pods ...*corev1.Pod) []*corev1.Pod { return pods }
	tests := []struct {
		name  string
		steps []step
	}{
		{"a first set that is empty is announced once", []step{
			{"file", nil, []string{"file ADD"}},
			{"file", nil, nil},
		}},
		{"new pods in the order of the set", []step{
			{"file", set(pod("b"), pod("a")), []string{"file ADD b a"}},
			{"file", set(pod("b"), pod("a")), nil},
			{"file", set(pod("c"), pod("b"), pod("a")), []string{"file ADD c"}},
		}},
		{"spec", []step{
			{"api", set(pod("a")), []string{"api ADD a"}},
			{"api", set(pod("a", image("j"))), []string{"api UPDATE a"}},
			{"api", set(pod("a", image("j"))), nil},
		}},
		{"labels", []step{
			{"api", set(pod("a")), []string{"api ADD a"}},
			{"api", set(pod("a", label)), []string{"api UPDATE a"}},
		}},
		{"annotations of the user", []step{
			{"api", set(pod("a")), []string{"api ADD a"}},
			{"api", set(pod("a", annotation("x", "1"))), []string{"api UPDATE a"}},
			{"api", set(pod("a")), []string{"api UPDATE a"}},
		}},
		{"the hash counts, the node's other annotations do not", []step{
			{"api", set(pod("a")), []string{"api ADD a"}},
			{"api", set(pod("a", annotation(staticpod.SourceAnnotation, "x"), annotation(staticpod.SeenAnnotation, "x"), annotation(staticpod.MirrorAnnotation, "x"))), nil},
			{"api", set(pod("a", annotation(staticpod.HashAnnotation, "x"))), []string{"api UPDATE a"}},
		}},
		{"status alone", []step{
			{"api", set(pod("a")), []string{"api ADD a"}},
			{"api", set(pod("a", running)), []string{"api RECONCILE a"}},
			{"api", set(pod("a", running)), nil},
		}},
		{"spec and status are one update", []step{
			{"api", set(pod("a")), []string{"api ADD a"}},
			{"api", set(pod("a", running, image("j"))), []string{"api UPDATE a"}},
			{"api", set(pod("a", running, image("j"))), nil},
		}},
		{"nothing that matters", []step{
			{"api", set(pod("a")), []string{"api ADD a"}},
			{"api", set(pod("a", irrelevant)), nil},
		}},
		{"deletion, and each change of it", []step{
			{"api", set(pod("a")), []string{"api ADD a"}},
			{"api", set(pod("a", deleted, grace(30))), []string{"api DELETE a"}},
			{"api", set(pod("a", deleted, grace(30))), nil},
			{"api", set(pod("a", deleted, grace(0))), []string{"api DELETE a"}},
			{"api", set(pod("a", deleted, grace(0), label)), []string{"api DELETE a"}},
			{"api", set(pod("a", deleted, grace(0), label, running)), []string{"api RECONCILE a"}},
			{"api", nil, []string{"api REMOVE a"}},
		}},
		{"first sight of a pod that is being deleted", []step{
			{"api", set(pod("a", deleted)), []string{"api ADD a"}},
		}},
		{"a new UID under the same name", []step{
			{"file", set(pod("a/1")), []string{"file ADD a/1"}},
			{"file", set(pod("a/2")), []string{"file REMOVE a/1", "file ADD a/2"}},
		}},
		{"everything at once, in order", []step{
			{"api", set(pod("gone"), pod("changed"), pod("ending"), pod("status"), pod("same")), []string{"api ADD gone changed ending status same"}},
			{"api", set(pod("status", running), pod("ending", deleted), pod("changed", image("j")), pod("new"), pod("same")), []string{
				"api REMOVE gone", "api ADD new", "api UPDATE changed", "api DELETE ending", "api RECONCILE status",
			}},
		}},
		{"sources are separate", []step{
			{"file", set(pod("a")), []string{"file ADD a"}},
			{"api", nil, []string{"api ADD"}},
			{"http", set(pod("b")), []string{"http ADD b"}},
			{"file", nil, []string{"file REMOVE a"}},
		}},
		{"a duplicate in one set: the first counts", []step{
			{"file", set(pod("a/1"), pod("a/2"), pod("b")), []string{"file ADD a/1 b"}},
			{"file", set(pod("a/2"), pod("b")), []string{"file REMOVE a/1", "file ADD a/2"}},
		}},
		{"a duplicate across static sources: the one in force counts, and the other follows", []step{
			{"http", set(pod("a/1")), []string{"http ADD a/1"}},
			{"file", set(pod("a/2"), pod("b")), []string{"file ADD b"}},
			{"http", set(pod("a/1", image("j"))), []string{"http UPDATE a/1"}},
			{"http", nil, []string{"http REMOVE a/1", "file ADD a/2"}},
			{"http", set(pod("a/1")), nil},
		}},
		{"a pod of the API beside a static one", []step{
			{"file", set(pod("a/1")), []string{"file ADD a/1"}},
			{"api", set(pod("a/2")), []string{"api ADD a/2"}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := New("file", "api")
			for i, step := range tt.steps {
				before := fmt.Sprint(step.pods)
				if diff := cmp.Diff(show(p.Merge(Delivery{Source: step.source, Pods: step.pods}, now)), step.want); diff != "" {
					t.Errorf("step %d (-got +want):\n%s", i, diff)
				}
				if fmt.Sprint(step.pods) != before {
					t.Errorf("step %d: the delivered pods were changed", i)
				}
			}
		})
	}
}

// What is stored of a pod, through an add and an update.
func TestAnnotations(t *testing.T) {
	p := New("file")
	added := p.Merge(Delivery{Source: "file", Pods: []*corev1.Pod{pod("a", annotation("x", "1"))}}, now)[0].Pods[0]
	want := map[string]string{"x": "1", staticpod.SourceAnnotation: "file", staticpod.SeenAnnotation: "2026-01-02T03:04:05.000000006Z"}
	if diff := cmp.Diff(added.Annotations, want); diff != "" {
		t.Errorf("new pod (-got +want):\n%s", diff)
	}
	updated := p.Merge(Delivery{Source: "file", Pods: []*corev1.Pod{pod("a", annotation("x", "2"), running, irrelevant)}}, now.Add(time.Hour))[0].Pods[0]
	want["x"] = "2"
	if diff := cmp.Diff(updated.Annotations, want); diff != "" {
		t.Errorf("changed pod (-got +want):\n%s", diff)
	}
	if updated.Status.Phase != corev1.PodRunning || updated.Generation != 3 {
		t.Errorf("status and generation were not taken: %s, %d", updated.Status.Phase, updated.Generation)
	}
	if added.Annotations["x"] != "1" {
		t.Error("a pod that was handed out was changed")
	}
	if got := p.All(); len(got) != 1 || got[0] != updated {
		t.Errorf("All: got %v", got)
	}
}

func TestFaults(t *testing.T) {
	p := New("file", "api")
	mirror := annotation(staticpod.MirrorAnnotation, "1")
	p.Merge(Delivery{Source: "file", Pods: []*corev1.Pod{pod("a/1"), pod("a/2"), pod("m/3")}}, now)
	p.Merge(Delivery{Source: "http", Pods: []*corev1.Pod{pod("a/4")}}, now)
	p.Merge(Delivery{Source: "api", Pods: []*corev1.Pod{pod("a/5"), pod("m/6", mirror)}}, now)
	var got []string
	for _, f := range p.Faults() {
		got = append(got, string(f.Pod.UID)+" "+f.Message)
	}
	want := []string{
		`5 duplicate pod name "default/a" from source "api": source "file" has it too; both run`,
		`2 duplicate pod name "default/a" from source "file": the first one of this source counts`,
		`4 duplicate pod name "default/a" from source "http": the one from source "file" is in force`,
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("faults (-got +want):\n%s", diff)
	}
	p.Merge(Delivery{Source: "file", Pods: []*corev1.Pod{pod("m/3")}}, now)
	p.Merge(Delivery{Source: "api", Pods: nil}, now)
	if got := p.Faults(); len(got) != 0 {
		t.Errorf("healed: got %v", got)
	}
}

func TestSeenAllSources(t *testing.T) {
	p := New("file", "api")
	both := sets.New("file", "api")
	if p.SeenAllSources(both) {
		t.Error("nothing was delivered")
	}
	p.Merge(Delivery{Source: "file", Pods: nil}, now)
	if p.SeenAllSources(both) {
		t.Error("the API has not delivered")
	}
	p.Merge(Delivery{Source: "api", Pods: nil}, now)
	if p.SeenAllSources(sets.New("file")) {
		t.Error("the updates of the API were not taken yet")
	}
	if !p.SeenAllSources(both) {
		t.Error("both were delivered and taken")
	}
	if !New().SeenAllSources(nil) {
		t.Error("no source: nothing to wait for")
	}
}

// TestModel delivers random sets and replays the updates on a map: in the end
// the map holds what the sets hold, and no update says what is known already.
func TestModel(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		p, replayed := New("file", "api"), map[string]string{}
		for range 30 {
			var set []*corev1.Pod
			want := map[string]string{}
			for _, name := range []string{"a", "b", "c", "d"} {
				if rnd.IntN(3) == 0 {
					continue
				}
				uid, img := fmt.Sprint(rnd.IntN(2)), fmt.Sprint(rnd.IntN(2))
				set = append(set, pod(name+"/"+name+uid, image(img)))
				want[name+uid] = img
			}
			last := Op(-1)
			for _, u := range p.Merge(Delivery{Source: "file", Pods: set}, now) {
				if u.Op <= last {
					t.Fatalf("seed %d: %s after %s", seed, u.Op, last)
				}
				last = u.Op
				for _, pod := range u.Pods {
					was, known := replayed[string(pod.UID)]
					now := pod.Spec.Containers[0].Image
					switch {
					case u.Op == OpRemove && known:
						delete(replayed, string(pod.UID))
					case u.Op == OpAdd && !known, u.Op == OpUpdate && known && was != now:
						replayed[string(pod.UID)] = now
					default:
						t.Fatalf("seed %d: %s of %s from %q to %q, known %v", seed, u.Op, pod.UID, was, now, known)
					}
				}
			}
			if diff := cmp.Diff(replayed, want); diff != "" {
				t.Fatalf("seed %d (-replayed +want):\n%s", seed, diff)
			}
		}
	}
}

func BenchmarkMergeOneChanged(b *testing.B) {
	for _, n := range []int{110, 500, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var set []*corev1.Pod
			for i := range n {
				set = append(set, pod(fmt.Sprintf("pod-%d", i), func(p *corev1.Pod) { p.ResourceVersion = "1" }))
			}
			other := slices.Clone(set)
			other[n/2] = pod(fmt.Sprintf("pod-%d", n/2), image("j"), func(p *corev1.Pod) { p.ResourceVersion = "2" })
			p := New("api")
			p.Merge(Delivery{Source: "api", Pods: set}, now)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%2 == 0 {
					p.Merge(Delivery{Source: "api", Pods: other}, now)
				} else {
					p.Merge(Delivery{Source: "api", Pods: set}, now)
				}
			}
		})
	}
}
