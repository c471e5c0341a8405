package staticpod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// TestUIDGolden holds the recipe: a value that changes here restarts every
// static pod of every user at their next upgrade.
func TestUIDGolden(t *testing.T) {
	tests := []struct{ name, written, node, source, want string }{
		{"pod", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default"},"spec":{"containers":[{"image":"i","name":"c"}]}}`, "n1", SourceFile, "43f91270172a8668241e5dc1ae270dd4"},
		{"other node", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default"},"spec":{"containers":[{"image":"i","name":"c"}]}}`, "n2", SourceFile, "db225f623504f1eb072a570d60422651"},
		{"other source", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default"},"spec":{"containers":[{"image":"i","name":"c"}]}}`, "n1", "http://x", "8927dcaf0d0e14c057a1035d738c6a12"},
		{"numbers", `{"spec":{"a":0.5,"b":12345678901234567890,"c":1e3}}`, "n1", SourceFile, "185d7c6158d451fff04c7435cfc6698e"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := UID([]byte(tt.written), tt.node, tt.source)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestUIDOfText checks what of a file's text is identity and what is not.
func TestUIDOfText(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: c\n    image: i\n"
	tests := []struct {
		name, file, text string
		same             bool
	}{
		{"moved", "other/b.yaml", pod, true},
		{"moved down", "a.yaml", "# a comment\n---\n" + pod, true},
		{"reordered", "a.yaml", "kind: Pod\nspec:\n  containers:\n  - image: i\n    name: c\nmetadata: {name: web}\napiVersion: v1\n", true},
		{"json", "a.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, true},
		{"in a list", "a.yaml", "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: web}\n  spec: {containers: [{name: c, image: i}]}\n", true},
		{"empty fields", "a.yaml", pod + "    env: []\n    resources: {limits: {}}\n  nodeSelector: null\n", true},
		{"the default namespace", "a.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  namespace: default\nspec:\n  containers:\n  - name: c\n    image: i\n", true},
		{"status and server fields", "a.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  resourceVersion: '1'\n  annotations: {kubernetes.io/config.hash: x}\nspec:\n  containers:\n  - name: c\n    image: i\nstatus: {phase: Running}\n", true},
		{"a default written out", "a.yaml", pod + "  restartPolicy: Always\n", false},
		{"image", "a.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: c\n    image: j\n", false},
		{"arguments", "a.yaml", pod + "    args: [x]\n", false},
		{"command", "a.yaml", pod + "    command: [x]\n", false},
		{"label", "a.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  labels: {a: b}\nspec:\n  containers:\n  - name: c\n    image: i\n", false},
	}
	p := manifest.New()
	uid := func(file, text string) types.UID {
		t.Helper()
		r := p.Parse(file, []byte(text))
		if len(r.Documents) != 1 {
			t.Fatal(r.Faults)
		}
		got, err := UID(r.Documents[0].Written, "n1", SourceFile)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	base := uid("a.yaml", pod)
	if want := types.UID("43f91270172a8668241e5dc1ae270dd4"); base != want {
		t.Errorf("got %s from text, want %s as from JSON", base, want)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := uid(tt.file, tt.text); (got == base) != tt.same {
				t.Errorf("same UID: got %v, want %v", got == base, tt.same)
			}
		})
	}
}

func TestUIDOfGarbage(t *testing.T) {
	for _, in := range []string{"", "null 1", "[]", `{"a":1} {}`, `{`} {
		if got, err := UID([]byte(in), "n", "file"); err == nil {
			t.Errorf("UID(%q): got %s and no error", in, got)
		}
	}
}

func TestNew(t *testing.T) {
	grace := int64(-5)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{MirrorAnnotation: "x", "keep": "y"}},
		Spec: corev1.PodSpec{
			NodeName:                      "elsewhere",
			TerminationGracePeriodSeconds: &grace,
			Tolerations:                   []corev1.Toleration{{Key: "a"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodFailed},
	}
	before := pod.DeepCopy()
	got, err := New(pod, []byte(`{"metadata":{"name":"web"}}`), "Node1", SourceFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pod, before); diff != "" {
		t.Errorf("the argument was changed:\n%s", diff)
	}
	one := int64(1)
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-node1", Namespace: "default", UID: got.UID,
			Annotations: map[string]string{"keep": "y", SourceAnnotation: "file", HashAnnotation: string(got.UID)},
		},
		Spec: corev1.PodSpec{
			NodeName:                      "Node1",
			TerminationGracePeriodSeconds: &one,
			Tolerations:                   []corev1.Toleration{{Key: "a"}, {Operator: "Exists", Effect: "NoExecute"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("static pod (-got +want):\n%s", diff)
	}
	if len(got.UID) != 32 {
		t.Errorf("UID %q has %d characters, want 32", got.UID, len(got.UID))
	}

	pod.UID = "given"
	if got, err := New(pod, nil, "Node1", SourceHTTP); err != nil || got.UID != "given" || got.Annotations[HashAnnotation] != "given" {
		t.Errorf("written UID: got %s, hash %s, %v", got.UID, got.Annotations[HashAnnotation], err)
	} else if len(got.Spec.Tolerations) != 1 {
		t.Errorf("a pod from a URL got tolerations %v", got.Spec.Tolerations)
	}
}

func TestMirror(t *testing.T) {
	pod, err := New(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u1"}}, nil, "n1", SourceFile)
	if err != nil {
		t.Fatal(err)
	}
	m := MirrorOf(pod, "n1", "node-uid")
	if !IsStatic(pod) || IsMirror(pod) || !IsMirror(m) {
		t.Errorf("static %v, mirror %v %v; want true, false, true", IsStatic(pod), IsMirror(pod), IsMirror(m))
	}
	if m.UID != "" || m.OwnerReferences[0].Kind != "Node" || m.OwnerReferences[0].UID != "node-uid" {
		t.Errorf("mirror: %+v", m.ObjectMeta)
	}
	if !Mirrors(m, pod) {
		t.Error("the mirror does not stand for its pod")
	}
	changed := pod.DeepCopy()
	changed.Annotations[HashAnnotation] = "u2"
	if Mirrors(m, changed) || Mirrors(pod, pod) {
		t.Error("stands for another version, or is no mirror at all")
	}
	if api := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{SourceAnnotation: SourceAPI}}}); IsStatic(api) || IsStatic(&corev1.Pod{}) {
		t.Error("a pod of the API is not static")
	}
}

func FuzzUID(f *testing.F) {
	f.Add([]byte(`{"a":[null,{}],"metadata":{"annotations":{"kubernetes.io/config.seen":"x"}}}`))
	f.Fuzz(func(t *testing.T, written []byte) {
		a, errA := UID(written, "n", SourceFile)
		b, errB := UID(written, "n", SourceFile)
		if a != b || (errA == nil) != (errB == nil) || errA == nil && len(a) != 32 {
			t.Errorf("%q %v, then %q %v", a, errA, b, errB)
		}
	})
}
