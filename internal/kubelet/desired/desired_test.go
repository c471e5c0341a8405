package desired

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

func TestMerge(t *testing.T) {
	type step struct {
		d    Delivery
		want []string
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"a first set that is empty is announced once", []step{
			{full("file"), []string{"file ADD"}},
			{full("file"), nil},
		}},
		{"new pods in the order of the set", []step{
			{full("file", pod("b"), pod("a")), []string{"file ADD b a"}},
			{full("file", pod("b"), pod("a")), nil},
			{full("file", pod("c"), pod("b"), pod("a")), []string{"file ADD c"}},
		}},
		{"spec", []step{
			{full("api", pod("a")), []string{"api ADD a"}},
			{full("api", pod("a", image("j"))), []string{"api UPDATE a"}},
			{full("api", pod("a", image("j"))), nil},
		}},
		{"labels", []step{
			{full("api", pod("a")), []string{"api ADD a"}},
			{full("api", pod("a", label)), []string{"api UPDATE a"}},
		}},
		{"annotations of the user", []step{
			{full("api", pod("a")), []string{"api ADD a"}},
			{full("api", pod("a", annotation("x", "1"))), []string{"api UPDATE a"}},
			{full("api", pod("a")), []string{"api UPDATE a"}},
		}},
		{"the hash counts, the node's other annotations do not", []step{
			{full("api", pod("a")), []string{"api ADD a"}},
			{full("api", pod("a", annotation(staticpod.SourceAnnotation, "x"), annotation(staticpod.SeenAnnotation, "x"), annotation(staticpod.MirrorAnnotation, "x"))), nil},
			{full("api", pod("a", annotation(staticpod.HashAnnotation, "x"))), []string{"api UPDATE a"}},
		}},
		{"status alone", []step{
			{full("api", pod("a")), []string{"api ADD a"}},
			{full("api", pod("a", running)), []string{"api RECONCILE a"}},
			{full("api", pod("a", running)), nil},
		}},
		{"spec and status are one update", []step{
			{full("api", pod("a")), []string{"api ADD a"}},
			{full("api", pod("a", running, image("j"))), []string{"api UPDATE a"}},
			{full("api", pod("a", running, image("j"))), nil},
		}},
		{"the same, decoded anew", []step{
			{full("file", pod("a", label, annotation("x", "1"), running)), []string{"file ADD a"}},
			{full("file", pod("a", label, annotation("x", "1"), running)), nil},
		}},
		{"empty and absent are the same", []step{
			{full("api", pod("a", absent)), []string{"api ADD a"}},
			{full("api", pod("a", empty)), nil},
		}},
		{"nothing that matters", []step{
			{full("api", pod("a")), []string{"api ADD a"}},
			{full("api", pod("a", irrelevant)), nil},
		}},
		{"deletion, and each change of it", []step{
			{full("api", pod("a")), []string{"api ADD a"}},
			{full("api", pod("a", deleted, grace(30))), []string{"api DELETE a"}},
			{full("api", pod("a", deleted, grace(30))), nil},
			{full("api", pod("a", deleted, grace(0))), []string{"api DELETE a"}},
			{full("api", pod("a", deleted, grace(0), label)), []string{"api DELETE a"}},
			{full("api", pod("a", deleted, grace(0), label, running)), []string{"api RECONCILE a"}},
			{full("api"), []string{"api REMOVE a"}},
		}},
		{"first sight of a pod that is being deleted", []step{
			{full("api", pod("a", deleted)), []string{"api ADD a"}},
		}},
		{"a new UID under the same name", []step{
			{full("file", pod("a/1")), []string{"file ADD a/1"}},
			{full("file", pod("a/2")), []string{"file REMOVE a/1", "file ADD a/2"}},
		}},
		{"everything at once, in order", []step{
			{full("api", pod("gone"), pod("changed"), pod("ending"), pod("status"), pod("same")), []string{"api ADD gone changed ending status same"}},
			{full("api", pod("status", running), pod("ending", deleted), pod("changed", image("j")), pod("new"), pod("same")), []string{
				"api REMOVE gone", "api ADD new", "api UPDATE changed", "api DELETE ending", "api RECONCILE status",
			}},
		}},
		{"sources are separate", []step{
			{full("file", pod("a")), []string{"file ADD a"}},
			{full("api"), []string{"api ADD"}},
			{full("http", pod("b")), []string{"http ADD b"}},
			{full("file"), []string{"file REMOVE a"}},
		}},
		{"a duplicate in one set: the first counts", []step{
			{full("file", pod("a/1"), pod("a/2"), pod("b")), []string{"file ADD a/1 b"}},
			{full("file", pod("a/2"), pod("b")), []string{"file REMOVE a/1", "file ADD a/2"}},
		}},
		{"a duplicate across static sources: the one in force counts, and the other follows", []step{
			{full("http", pod("a/1")), []string{"http ADD a/1"}},
			{full("file", pod("a/2"), pod("b")), []string{"file ADD b"}},
			{full("http", pod("a/1", image("j"))), []string{"http UPDATE a/1"}},
			{full("http"), []string{"http REMOVE a/1", "file ADD a/2"}},
			{full("http", pod("a/1")), nil},
		}},
		{"a pod of the API beside a static one", []step{
			{full("file", pod("a/1")), []string{"file ADD a/1"}},
			{full("api", pod("a/2")), []string{"api ADD a/2"}},
		}},
		{"a delta says what changed, and what did not is kept", []step{
			{full("api", pod("a"), pod("b"), pod("c")), []string{"api ADD a b c"}},
			{delta("api", gone("a"), pod("d"), pod("b", image("j"))), []string{"api REMOVE a", "api ADD d", "api UPDATE b"}},
			{delta("api", gone("a", "never")), nil},
			{delta("api", nil, pod("c", running), pod("d", deleted)), []string{"api DELETE d", "api RECONCILE c"}},
			{delta("api", nil), nil},
			{full("api", pod("b", image("j")), pod("c", running), pod("d", deleted)), nil},
		}},
		{"a delta before the first set is taken, and the source still announced", []step{
			{delta("api", nil, pod("a")), []string{"api ADD a"}},
			{full("api", pod("a")), []string{"api ADD"}},
			{full("api"), []string{"api REMOVE a"}},
		}},
		{"a delta replaces a pod by another of its name", []step{
			{full("api", pod("a/1")), []string{"api ADD a/1"}},
			{delta("api", gone("1"), pod("a/2")), []string{"api REMOVE a/1", "api ADD a/2"}},
		}},
		{"gone and here again in one delta", []step{
			{full("api", pod("a")), []string{"api ADD a"}},
			{delta("api", gone("a"), pod("a", label)), []string{"api UPDATE a"}},
		}},
		{"a delta that takes the winner brings the loser of its own source back", []step{
			{full("file", pod("a/1"), pod("a/2"), pod("a/3")), []string{"file ADD a/1"}},
			{delta("file", gone("2")), nil},
			{delta("file", gone("1")), []string{"file REMOVE a/1", "file ADD a/3"}},
		}},
		{"a delta that takes the winner brings the loser of another source back", []step{
			{full("http", pod("a/1"), pod("b/4")), []string{"http ADD a/1 b/4"}},
			{full("file", pod("a/2"), pod("b/6"), pod("b/3")), []string{"file ADD"}},
			{delta("http", gone("1"), pod("b/5")), []string{"http REMOVE a/1", "file ADD a/2"}},
			{delta("http", gone("4")), []string{"http REMOVE b/4", "http ADD b/5"}},
			{delta("http", gone("5")), []string{"http REMOVE b/5", "file ADD b/6"}},
		}},
		{"a changed winner stays the winner", []step{
			{full("file", pod("a/1"), pod("a/2")), []string{"file ADD a/1"}},
			{delta("file", nil, pod("a/1", label)), []string{"file UPDATE a/1"}},
			{delta("file", nil, pod("a/2", label)), nil},
		}},
		{"the order of a set decides between duplicates", []step{
			{full("file", pod("a/1"), pod("a/2")), []string{"file ADD a/1"}},
			{full("file", pod("a/2"), pod("a/1")), []string{"file REMOVE a/1", "file ADD a/2"}},
		}},
		{"a UID twice in one set: the first counts", []step{
			{full("file", pod("a/1"), pod("b/1")), []string{"file ADD a/1"}},
			{full("file", pod("b/1")), []string{"file REMOVE a/1", "file ADD b/1"}},
		}},
		{"another name under the same UID is another pod", []step{
			{full("file", pod("a/1"), pod("x")), []string{"file ADD a/1 x"}},
			{full("file", pod("b/1"), pod("x")), []string{"file REMOVE a/1", "file ADD b/1"}},
			{delta("file", nil, pod("c/1")), []string{"file REMOVE b/1", "file ADD c/1"}},
			{full("file", pod("c/1"), pod("x")), nil},
		}},
		{"any namespace, even one that the API would refuse", []step{
			{full("api", pod("a/1", namespace("new")), pod("a/2", namespace("")), pod("a/3", namespace(".not/valid."))), []string{"api ADD a/1 a/2 a/3"}},
		}},
		{"the same name in two namespaces are two pods", []step{
			{full("api", pod("a/1"), pod("a/2", namespace("other"))), []string{"api ADD a/1 a/2"}},
			{delta("api", gone("1")), []string{"api REMOVE a/1"}},
		}},
		{"the first to come takes a name that three sources want", []step{
			{full("http", pod("a/1")), []string{"http ADD a/1"}},
			{full("file", pod("a/2")), []string{"file ADD"}},
			{full("more", pod("a/3")), []string{"more ADD"}},
			{full("http"), []string{"http REMOVE a/1", "file ADD a/2"}},
			{full("file"), []string{"file REMOVE a/2", "more ADD a/3"}},
		}},
		{"restored: what the source then says is only what differs", []step{
			{restored("api", pod("same"), pod("status"), pod("changed"), pod("gone"), pod("new/1")), []string{"api RESTORE same status changed gone new/1"}},
			{full("api", pod("changed", label), pod("same"), pod("status", running), pod("new/2")), []string{
				"api REMOVE gone new/1", "api ADD new/2", "api UPDATE changed", "api RECONCILE status",
			}},
		}},
		{"restored: the first set is announced even if nothing differs", []step{
			{restored("api", pod("a")), []string{"api RESTORE a"}},
			{full("api", pod("a")), []string{"api ADD"}},
			{full("api", pod("a")), nil},
		}},
		{"restored: nothing, and again", []step{
			{restored("api"), nil},
			{restored("api", pod("a")), []string{"api RESTORE a"}},
			{restored("api", pod("a", label)), nil},
			{restored("api", pod("a/2"), pod("b")), []string{"api RESTORE b"}},
		}},
		{"restored: too late once the source has answered", []step{
			{full("api", pod("a")), []string{"api ADD a"}},
			{restored("api", pod("a", label), pod("b")), nil},
			{full("api", pod("a")), nil},
		}},
		{"restored: a delta of the source itself counts more", []step{
			{restored("api", pod("a/1"), pod("b")), []string{"api RESTORE a/1 b"}},
			{delta("api", nil, pod("a/2"), pod("b", label)), []string{"api REMOVE a/1", "api ADD a/2", "api UPDATE b"}},
			{restored("api", pod("a/1"), pod("b")), nil},
		}},
		{"restored: a static pod gives way to one that is in force", []step{
			{full("file", pod("a/1")), []string{"file ADD a/1"}},
			{restored("http", pod("a/2"), pod("b")), []string{"http RESTORE b"}},
			{full("file"), []string{"file REMOVE a/1", "http ADD a/2"}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := New("file", "api")
			for i, step := range tt.steps {
				before := fmt.Sprint(step.d.Pods)
				if diff := cmp.Diff(show(p.Merge(step.d, now)), step.want); diff != "" {
					t.Errorf("step %d (-got +want):\n%s", i, diff)
				}
				if fmt.Sprint(step.d.Pods) != before {
					t.Errorf("step %d: the delivered pods were changed", i)
				}
			}
		})
	}
}

// TestModes merges the same deliveries in every mode.
func TestModes(t *testing.T) {
	steps := []struct {
		name                      string
		d                         Delivery
		snapshot, snapshotUpdates []string
	}{
		{"a first set", full("file", pod("b"), pod("a")), []string{"file SET a b"}, []string{"file SET a b"}},
		{"a first set that is empty", full("api"), []string{"api SET a b"}, []string{"api SET a b"}},
		{"nothing", full("api"), nil, nil},
		{"an add", full("api", pod("c")), []string{"api SET a b c"}, []string{"api SET a b c"}},
		{"an update", full("api", pod("c", label)), []string{"api SET a b c"}, []string{"api UPDATE c"}},
		{"a status", full("api", pod("c", label, running)), nil, nil},
		{"a deletion", full("api", pod("c", label, deleted)), []string{"api SET a b c"}, []string{"api DELETE c"}},
		{"add and update", delta("file", nil, pod("d"), pod("a", label)), []string{"file SET a b c d"}, []string{"file SET a b c d", "file UPDATE a"}},
		{"a removal", full("api"), []string{"api SET a b d"}, []string{"api SET a b d"}},
		{"restored", restored("http", pod("e")), []string{"http SET a b d e"}, []string{"http SET a b d e"}},
		{"a first set of an update", full("http", pod("e", label)), []string{"http SET a b d e"}, []string{"http SET a b d e", "http UPDATE e"}},
	}
	for mode, want := range map[Mode]func(i int) []string{
		Snapshot:           func(i int) []string { return steps[i].snapshot },
		SnapshotAndUpdates: func(i int) []string { return steps[i].snapshotUpdates },
	} {
		p, err := NewInMode(mode, "file", "api")
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range steps {
			updates := p.Merge(step.d, now)
			if diff := cmp.Diff(show(updates), want(i)); diff != "" {
				t.Errorf("mode %d, %s (-got +want):\n%s", mode, step.name, diff)
			}
			for _, u := range updates {
				if u.Op == OpSet && !slices.Equal(u.Pods, p.All()) {
					t.Errorf("mode %d, %s: the set is not the newest", mode, step.name)
				}
			}
		}
	}
	for _, mode := range []Mode{-1, SnapshotAndUpdates + 1} {
		if _, err := NewInMode(mode); err == nil {
			t.Errorf("mode %d is not known, and no error", mode)
		}
	}
}

func TestSnapshot(t *testing.T) {
	p := New("file", "api")
	if got := show([]Update{p.Snapshot()}); got[0] != "* SET" {
		t.Errorf("nothing: got %q", got)
	}
	p.Merge(full("file", pod("b"), pod("d")), now)
	p.Merge(full("api", pod("c"), pod("a")), now)
	if got := show([]Update{p.Snapshot()}); got[0] != "* SET a b c d" {
		t.Errorf("got %q", got)
	}
}

// TestPromisesOfTheServer holds what resourceVersion and generation spare, and
// that they do so for the API alone: in a document they are only text.
func TestPromisesOfTheServer(t *testing.T) {
	version := func(v string, generation int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.ResourceVersion, p.Generation = v, generation }
	}
	for _, tt := range []struct {
		name      string
		old, new  *corev1.Pod
		api, file string
	}{
		{"same version", pod("a", version("1", 1)), pod("a", version("1", 1), image("j")), "", "UPDATE"},
		{"same generation: same spec", pod("a", version("1", 1)), pod("a", version("2", 1), image("j")), "", "UPDATE"},
		{"same generation, other status", pod("a", version("1", 1)), pod("a", version("2", 1), running), "RECONCILE", "RECONCILE"},
		{"same generation, other labels", pod("a", version("1", 1)), pod("a", version("2", 1), label), "UPDATE", "UPDATE"},
		{"same generation, other annotations", pod("a", version("1", 1)), pod("a", version("2", 1), annotation("x", "1")), "UPDATE", "UPDATE"},
		{"same generation, deleted", pod("a", version("1", 1)), pod("a", version("2", 1), deleted), "DELETE", "DELETE"},
		{"same generation, other grace period", pod("a", version("1", 1), deleted, grace(30)), pod("a", version("2", 1), deleted, grace(1)), "DELETE", "DELETE"},
		{"no generation", pod("a", version("1", 0)), pod("a", version("2", 0), image("j")), "UPDATE", "UPDATE"},
		{"other generation, same spec", pod("a", version("1", 1)), pod("a", version("2", 2)), "", ""},
	} {
		for source, op := range map[string]string{"api": tt.api, "file": tt.file} {
			p := New(source)
			p.Merge(full(source, tt.old), now)
			var want []string
			if op != "" {
				want = []string{source + " " + op + " a"}
			}
			if diff := cmp.Diff(show(p.Merge(full(source, tt.new), now)), want); diff != "" {
				t.Errorf("%s, %s (-got +want):\n%s", tt.name, source, diff)
			}
			if diff := cmp.Diff(show(p.Merge(delta(source, nil, tt.new), now)), []string(nil)); diff != "" {
				t.Errorf("%s, %s, again (-got +want):\n%s", tt.name, source, diff)
			}
		}
	}
}

// What is stored of a pod, through an add and an update.
func TestAnnotations(t *testing.T) {
	p := New("file")
	added := p.Merge(full("file", pod("a", annotation("x", "1"))), now)[0].Pods[0]
	want := map[string]string{"x": "1", staticpod.SourceAnnotation: "file", staticpod.SeenAnnotation: "2026-01-02T03:04:05.000000006Z"}
	if diff := cmp.Diff(added.Annotations, want); diff != "" {
		t.Errorf("new pod (-got +want):\n%s", diff)
	}
	updated := p.Merge(full("file", pod("a", annotation("x", "2"), running, irrelevant)), now.Add(time.Hour))[0].Pods[0]
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
	file := full("file", pod("a/1"), pod("a/2"), pod("m/3"), pod("b/3"))
	file.Places = []string{"web.yaml:1", "web.yaml:9", "m.yaml:1", "b.yaml:1"}
	p.Merge(file, now)
	p.Merge(full("http", pod("a/4")), now)
	p.Merge(full("api", pod("a/5"), pod("m/6", mirror)), now)
	faults := func() (got []string) {
		for _, f := range p.Faults() {
			got = append(got, f.Source+" "+string(f.Pod.UID)+" "+f.Message)
		}
		return got
	}
	want := []string{
		`api 5 duplicate pod name "default/a": UID 5 (source "api") runs beside web.yaml:1 (source "file"), which the API does not show; give one of them another name`,
		`file 2 duplicate pod name "default/a": web.yaml:9 (source "file") is left out, as web.yaml:1 (source "file") comes first; give one of them another name`,
		`file 3 duplicate pod UID "3": b.yaml:1 (source "file") is left out, as m.yaml:1 (source "file") comes first; leave metadata.uid out of one of them`,
		`http 4 duplicate pod name "default/a": UID 4 (source "http") is left out, as web.yaml:1 (source "file") is in force; give one of them another name`,
	}
	if diff := cmp.Diff(faults(), want); diff != "" {
		t.Errorf("faults (-got +want):\n%s", diff)
	}

	// A delta that touches the pods of a fault changes it; another one does not.
	p.Merge(delta("file", nil, pod("x")), now)
	if diff := cmp.Diff(faults(), want); diff != "" {
		t.Errorf("after a delta of others (-got +want):\n%s", diff)
	}
	p.Merge(Delivery{Source: "file", Kind: Delta, Gone: gone("2", "3")}, now)
	if diff := cmp.Diff(faults(), []string{want[0], want[3]}); diff != "" {
		t.Errorf("after a delta (-got +want):\n%s", diff)
	}
	p.Merge(delta("api", nil, pod("m/7")), now)
	p.Merge(Delivery{Source: "file", Kind: Delta, Pods: []*corev1.Pod{pod("m/8")}, Places: []string{"n.yaml:1"}}, now)
	if got := faults(); len(got) != 3 || !strings.Contains(got[1], "UID 7 (source \"api\") is left out, as UID 6") {
		t.Errorf("a second pod of a name in the API: got %q", got)
	}
	p.Merge(delta("api", gone("6")), now)
	if got := faults(); len(got) != 3 || !strings.Contains(got[1], "UID 7 (source \"api\") runs beside n.yaml:1 (source \"file\")") {
		t.Errorf("its mirror is gone: got %q", got)
	}
	p.Merge(full("http"), now)
	p.Merge(full("api"), now)
	if got := faults(); len(got) != 0 {
		t.Errorf("healed: got %q", got)
	}
}

// TestCost holds that what did not change is not made anew, and that a delta
// makes as much for a few pods as for many.
func TestCost(t *testing.T) {
	costs := func(n int) (unchanged, listedAnew, oneOfAll, oneAsDelta float64) {
		version := 1
		fresh := func(i int) *corev1.Pod {
			return pod(fmt.Sprintf("pod-%d", i), func(p *corev1.Pod) { p.ResourceVersion, p.Generation = fmt.Sprint(version), 1 }, running)
		}
		set := func() (set []*corev1.Pod) {
			for i := range n {
				set = append(set, fresh(i))
			}
			return set
		}
		p, all, again := New("api"), set(), set()
		p.Merge(full("api", all...), now)
		var changed []*corev1.Pod
		for version = 2; version < 10; version++ {
			changed = append(changed, fresh(n/2))
			changed[len(changed)-1].Status.Message = fmt.Sprint(version)
		}
		next := func() *corev1.Pod { // never the same twice in a row
			changed = append(changed[1:len(changed):len(changed)], changed[0])
			return changed[0]
		}
		merge := func(d Delivery, want int) func() {
			return func() {
				if got := len(p.Merge(d, now)); got != want {
					t.Fatalf("%d pods: %d updates, want %d", n, got, want)
				}
			}
		}
		unchanged = testing.AllocsPerRun(5, merge(full("api", all...), 0))
		listedAnew = testing.AllocsPerRun(5, merge(full("api", again...), 0))
		oneOfAll = testing.AllocsPerRun(5, func() {
			all[n/2] = next()
			merge(full("api", all...), 1)()
		})
		oneAsDelta = testing.AllocsPerRun(5, func() { merge(delta("api", nil, next()), 1)() })
		return unchanged, listedAnew, oneOfAll, oneAsDelta
	}
	few, many := make([]float64, 4), make([]float64, 4)
	few[0], few[1], few[2], few[3] = costs(10)
	many[0], many[1], many[2], many[3] = costs(5000)
	if diff := cmp.Diff(many, few); diff != "" {
		t.Errorf("allocations with 5,000 pods (-) are not those with 10 (+):\n%s", diff)
	}
	if many[0] > 5 || many[1] > 5 {
		t.Errorf("a set without a change makes %.0f objects, one that is listed anew %.0f; want next to none", many[0], many[1])
	}
}

func TestSeenAllSources(t *testing.T) {
	p := New("file", "api")
	both := sets.New("file", "api")
	if p.SeenAllSources(both) {
		t.Error("nothing was delivered")
	}
	p.Merge(full("file"), now)
	if p.SeenAllSources(both) {
		t.Error("the API has not delivered")
	}
	p.Merge(full("api"), now)
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

// The pod of a name that runs over a restart of the agent goes on, whichever
// source answers first.
func TestKeep(t *testing.T) {
	name := types.NamespacedName{Namespace: "default", Name: "a"}
	tests := []struct {
		name  string
		keep  string // the source whose pod runs
		steps []Delivery
		want  [][]string
	}{
		{
			"its source has it still", "http",
			[]Delivery{full("file", pod("a/1"), pod("b")), full("http", pod("a/2"))},
			[][]string{{"file ADD b"}, {"http ADD a/2"}},
		},
		{
			"its source has it no more", "http",
			[]Delivery{full("file", pod("a/1")), full("http")},
			[][]string{{"file ADD"}, {"http ADD", "file ADD a/1"}},
		},
		{
			"the other lets go before", "http",
			[]Delivery{full("file", pod("a/1")), full("file"), full("http")},
			[][]string{{"file ADD"}, nil, {"http ADD"}},
		},
		{
			"its own source comes first", "file",
			[]Delivery{full("file", pod("a/1")), full("http", pod("a/2"))},
			[][]string{{"file ADD a/1"}, {"http ADD"}},
		},
		{
			"an edit in its own source", "file",
			[]Delivery{full("http", pod("a/2")), full("file", pod("a/3"))},
			[][]string{{"http ADD"}, {"file ADD a/3"}},
		},
		{
			"the API's are kept apart by the server", "api",
			[]Delivery{full("file", pod("a/1")), full("http"), full("api")},
			[][]string{{"file ADD a/1"}, {"http ADD"}, {"api ADD"}},
		},
		{
			"a source that is not there any more", "url",
			[]Delivery{full("file", pod("a/1"))},
			[][]string{{"file ADD a/1"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := New("file", "http", "api")
			p.Keep(name, tt.keep)
			for i, d := range tt.steps {
				if diff := cmp.Diff(show(p.Merge(d, now)), tt.want[i]); diff != "" {
					t.Errorf("step %d (-got +want):\n%s", i, diff)
				}
			}
		})
	}
	p := New("file", "http")
	p.Keep(name, "http")
	p.Merge(full("file", pod("a/1")), now)
	want := `duplicate pod name "default/a": UID 1 (source "file") waits until source "http" has answered, whose pod of that name runs`
	if got := p.Faults(); len(got) != 1 || got[0].Message != want {
		t.Errorf("faults while it waits: %v, want %q", got, want)
	}
	p.Merge(full("http"), now)
	p.Keep(name, "http") // too late: it has answered
	if got := p.Faults(); len(got) != 0 {
		t.Errorf("faults: %v", got)
	}
	if got, want := show(p.Merge(delta("file", []types.UID{"1"}, pod("a/9")), now)), []string{"file REMOVE a/1", "file ADD a/9"}; !cmp.Equal(got, want) {
		t.Errorf("after all: got %v, want %v", got, want)
	}
}
