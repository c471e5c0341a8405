package podsource

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A delivery is what a source hands on, as the names of its pods.
type delivery struct {
	source string
	pods   []*corev1.Pod
}

func (d delivery) names() string {
	var names []string
	for _, p := range d.pods {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

// run runs a source and returns what it delivers.
func run(t *testing.T, source func(Deliver) func(context.Context) error) <-chan delivery {
	t.Helper()
	got := make(chan delivery)
	runtest.Start(t, source(func(ctx context.Context, d desired.Delivery) {
		select {
		case got <- delivery{d.Source, d.Pods}:
		case <-ctx.Done():
		}
	}))
	return got
}

func log(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// next waits for a delivery of these names; sets in between may be skipped.
func next(t *testing.T, got <-chan delivery, want string) delivery {
	t.Helper()
	for {
		select {
		case d := <-got:
			if d.names() == want {
				return d
			}
			t.Logf("passing over %q", d.names())
		case <-t.Context().Done():
			t.Fatalf("no delivery of %q", want)
		}
	}
}

func documents(t *testing.T, text string) []manifest.Document {
	t.Helper()
	r := manifest.New().Parse("a.yaml", []byte(text))
	if len(r.Faults) > 0 {
		t.Fatal(r.Faults)
	}
	return r.Documents
}

const twoKinds = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  serviceAccountName: me
  containers:
  - {name: c, image: i}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
`

func TestStatic(t *testing.T) {
	var f *Static
	got := run(t, func(d Deliver) func(context.Context) error {
		f = NewStatic(StaticConfig{Source: "file", Node: "N1", AllowAPIReferences: true, Deliver: d, Log: log(t)})
		return f.Run
	})
	f.Update(nil)
	if d := next(t, got, ""); d.source != "file" || d.pods == nil {
		t.Errorf("empty set: got %v from %q", d.pods, d.source)
	}
	f.Update(documents(t, twoKinds))
	pod := next(t, got, "web-n1").pods[0]
	if !staticpod.IsStatic(pod) || pod.Spec.NodeName != "N1" {
		t.Errorf("not a static pod of the node: %+v", pod.ObjectMeta)
	}
	if got, want := len(pod.Spec.Volumes), 1; got != want {
		t.Errorf("volumes: got %d, want %d: the token", got, want)
	}
	f.Update(nil)
	next(t, got, "")
}

// The UID of a URL's pod comes from the address too, and no toleration is added:
// upstream's rules.
func TestStaticURL(t *testing.T) {
	from := func(source, file, text string) *corev1.Pod {
		t.Helper()
		docs := documents(t, text)
		docs[0].File = file
		d := NewStatic(StaticConfig{Source: source, Node: "n1", AllowAPIReferences: true, Log: log(t)}).delivery(docs)
		if d.Source != source || d.Places[0] != file+":1" {
			t.Errorf("got source %q, place %q", d.Source, d.Places[0])
		}
		return d.Pods[0]
	}
	a := from("http", "https://a/pods", twoKinds)
	if got, want := a.Annotations[staticpod.SourceAnnotation], "http"; got != want {
		t.Errorf("source annotation: got %q, want %q", got, want)
	}
	if len(a.Spec.Tolerations) != 0 {
		t.Errorf("tolerations: got %v, want none", a.Spec.Tolerations)
	}
	if got, want := a.UID, types.UID("4f02525bed575aa1085618a518d10cb3"); got != want {
		t.Errorf("UID: got %s, want %s: a release that changes it restarts every pod", got, want)
	}
	others := map[types.UID]string{a.UID: "https://a/pods"}
	for _, b := range []*corev1.Pod{from("http", "https://b/pods", twoKinds), from("file", "https://a/pods", twoKinds)} {
		if _, same := others[b.UID]; same || b.Annotations[staticpod.HashAnnotation] != string(b.UID) {
			t.Errorf("UID %s, hash %s: want another than %v", b.UID, b.Annotations[staticpod.HashAnnotation], others)
		}
		others[b.UID] = b.Name
	}
	if got := from("http", "https://b/pods", strings.Replace(twoKinds, "name: web", "name: web, uid: u1", 1)).UID; got != "u1" {
		t.Errorf("a UID that is written: got %s", got)
	}
}

func TestCheckURL(t *testing.T) {
	s := NewStatic(StaticConfig{Source: "http", Node: "n1", AllowAPIReferences: true})
	var got []string
	for _, d := range documents(t, twoKinds) {
		for _, fault := range s.Check(d) {
			got = append(got, fault.String())
		}
	}
	want := []string{"a.yaml:10: ConfigMap default/c: kind: a URL gives pods only; write it to the manifest folder, or apply it with kubectl"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("faults (-got +want):\n%s", diff)
	}
}

func TestCheck(t *testing.T) {
	long := strings.ReplaceAll(twoKinds, "name: web", "name: "+strings.Repeat("a", 250))
	elsewhere := strings.Replace(twoKinds, "serviceAccountName: me", "nodeName: n2", 1)
	tests := []struct {
		name, text string
		allow      bool
		want       []string
	}{
		{"allowed", twoKinds, true, nil},
		{"another node", elsewhere, true, []string{"a.yaml:5: Pod default/web: spec.nodeName: static pods here run on node n1.example, not on n2; leave the field out"}},
		{"refused", twoKinds, false, []string{"a.yaml:5: Pod default/web: spec.serviceAccountName: static pods may not reference serviceaccounts; create the pod through the API instead"}},
		{"too long with the node's name", long, true, []string{"a.yaml:3: Pod default/" + strings.Repeat("a", 250) + ": metadata.name: with this node's name it is \"" + strings.Repeat("a", 250) + "-n1.example\": must be no more than 253 characters; choose a shorter name"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := NewStatic(StaticConfig{Source: "file", Node: "n1.example", AllowAPIReferences: tt.allow})
			var got []string
			for _, d := range documents(t, tt.text) {
				for _, fault := range f.Check(d) {
					got = append(got, fault.String())
				}
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("faults (-got +want):\n%s", diff)
			}
		})
	}
}

// TestPriorityClasses holds that a class of the folder counts for its pods, that
// the pod stays the same pod when it comes and goes, and that a class is not
// warned of then.
func TestPriorityClasses(t *testing.T) {
	var lines strings.Builder
	s := NewStatic(StaticConfig{Source: "file", Node: "n1", Log: slog.New(slog.NewTextHandler(&lines, nil))})
	pod := strings.Replace(twoKinds, "serviceAccountName: me", "priorityClassName: mine", 1)
	class := "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: mine}\nvalue: 50\n"
	with := s.delivery(documents(t, pod+class)).Pods[0]
	if p := with.Spec.Priority; p == nil || *p != 50 || lines.Len() > 0 {
		t.Errorf("priority: got %v, want 50; log: %s", p, lines.String())
	}
	without := s.delivery(documents(t, pod)).Pods[0]
	if without.Spec.Priority != nil || without.UID != with.UID || lines.Len() == 0 {
		t.Errorf("without its class: priority %v, UID %s, want none and %s; log: %q", without.Spec.Priority, without.UID, with.UID, lines.String())
	}
}

// A warning about a priority is told once, and again when the pod was away.
func TestPriorityWarnings(t *testing.T) {
	var lines strings.Builder
	s := NewStatic(StaticConfig{Source: "file", Node: "n1", Log: slog.New(slog.NewTextHandler(&lines, nil))})
	docs := documents(t, strings.Replace(twoKinds, "serviceAccountName: me", "priorityClassName: mine", 1))
	for i, step := range []struct {
		docs []manifest.Document
		want int
	}{{docs, 1}, {docs, 0}, {nil, 0}, {docs, 1}} {
		s.delivery(step.docs)
		if got := strings.Count(lines.String(), `priorityClassName \"mine\" has no value`); got != step.want {
			t.Errorf("step %d: warned %d times, want %d:\n%s", i, got, step.want, lines.String())
		}
		lines.Reset()
	}
	fixed := documents(t, strings.Replace(twoKinds, "serviceAccountName: me", "priorityClassName: system-node-critical", 1))
	if got := s.delivery(fixed).Pods[0].Spec.Priority; got == nil || *got != 2000001000 || lines.Len() > 0 {
		t.Errorf("priority: got %v, want 2000001000; log: %s", got, lines.String())
	}
}
