package manifestdiff

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

func documents(t *testing.T, file, text string) []manifest.Document {
	t.Helper()
	r := manifest.New().Parse(file, []byte(text))
	if len(r.Faults) > 0 {
		t.Fatal(r.Faults)
	}
	return r.Documents
}

func pod(name, meta, spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + meta + "}\nspec:\n  containers:\n  - {name: a, image: one}\n" + spec + "---\n"
}

func TestActions(t *testing.T) {
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n---\n"
	const recreated = "the pod is recreated: the old one ends before the new one starts"
	const b = "  - {name: b, image: one}\n"
	for name, test := range map[string]struct {
		before, after string
		want          Action
		effect        string
	}{
		"new pod":             {"", pod("p", "", ""), Add, "the pod starts"},
		"gone":                {pod("p", "", ""), "", Remove, "the pod ends"},
		"new object":          {"", object, Add, ""},
		"object gone":         {object, "", Remove, ""},
		"same":                {pod("p", "", ""), pod("p", "", ""), Unchanged, ""},
		"another place":       {pod("p", "", ""), "# a comment\n" + pod("p", "", ""), Unchanged, ""},
		"another spelling":    {pod("p", "", ""), pod("p", ", annotations: {}", ""), Unchanged, ""},
		"a label":             {pod("p", "", ""), pod("p", ", labels: {a: b}", ""), Update, recreated},
		"UID, a label":        {pod("p", ", uid: u", ""), pod("p", ", uid: u, labels: {a: b}", ""), Update, "the pod stays, for its UID is written; no container restarts, and each takes the change when it starts next"},
		"UID, an image":       {pod("p", ", uid: u", b), pod("p", ", uid: u", strings.Replace(b, "one", "two", 1)), Update, "the pod stays, for its UID is written; these containers start anew: b"},
		"UID, a container":    {pod("p", ", uid: u", ""), pod("p", ", uid: u", b), Update, "the pod stays, for its UID is written; these containers start anew: b"},
		"another UID":         {pod("p", ", uid: u", ""), pod("p", ", uid: v", ""), Update, recreated},
		"an object's field":   {object, strings.Replace(object, "---", "data: {a: one}\n---", 1), Update, ""},
		"UID written anew":    {pod("p", "", ""), pod("p", ", uid: u", ""), Update, recreated},
		"UID, other spelling": {pod("p", ", uid: u", ""), pod("p", ", uid: u, annotations: {}", ""), Update, "the pod stays, for its UID is written; no container restarts, and each takes the change when it starts next"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after []manifest.Document
			if test.before != "" {
				before = documents(t, "a.yaml", test.before)
			}
			if test.after != "" {
				after = documents(t, "b.yaml", test.after)
			}
			got := Compare(before, after, nil, "edge-1")
			if len(got) != 1 || got[0].Action != test.want || got[0].Effect != test.effect {
				t.Fatalf("got %+v, want %s: %s", got, test.want, test.effect)
			}
			file := "b.yaml:"
			if test.want == Remove {
				file = "a.yaml:"
			}
			if !strings.HasPrefix(got[0].Place, file) {
				t.Errorf("place: got %s, want %s…", got[0].Place, file)
			}
			if (len(got[0].Fields) > 0) != (test.want == Update) {
				t.Errorf("fields: %+v", got[0].Fields)
			}
		})
	}
}

func TestKept(t *testing.T) {
	docs := documents(t, "a.yaml", pod("p", "", "")+pod("q", "", ""))
	got := Compare(docs, docs, []manifest.Key{docs[1].Key}, "edge-1")
	if len(got) != 2 || got[0].Action != Unchanged || got[1].Action != Keep || got[1].Object != "Pod default/q" {
		t.Errorf("got %+v", got)
	}
}

func TestFields(t *testing.T) {
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {kubectl.kubernetes.io/last-applied-configuration: hidden1, plain: a}}\n"
	container := func(name, image string) string { return "  - {name: " + name + ", image: " + image + "}\n" }
	for name, test := range map[string]struct {
		before, after string
		want          []Field
	}{
		"a scalar": {pod("p", "", ""), strings.Replace(pod("p", "", ""), "one", "two", 1), []Field{{"spec.containers[0].image", "one", "two"}}},
		"fields that come and go": {pod("p", "", "  hostNetwork: true\n"), pod("p", ", labels: {app.kubernetes.io/name: x, b: c}", ""), []Field{
			{"metadata.labels", nil, map[string]any{"app.kubernetes.io/name": "x", "b": "c"}}, {"spec.hostNetwork", true, nil},
		}},
		"a label": {pod("p", ", labels: {app.kubernetes.io/name: x}", ""), pod("p", ", labels: {app.kubernetes.io/name: z}", ""), []Field{
			{"metadata.labels[app.kubernetes.io/name]", "x", "z"},
		}},
		"items by name": {pod("p", "", container("b", "one")), pod("p", "", container("c", "one")+container("b", "two")), []Field{
			{"spec.containers[1]", nil, map[string]any{"name": "c", "image": "one"}}, {"spec.containers[2].image", "one", "two"},
		}},
		"an item that goes": {pod("p", "", container("b", "one")), pod("p", "", ""), []Field{
			{"spec.containers[1]", map[string]any{"name": "b", "image": "one"}, nil},
		}},
		"another order": {pod("p", "", container("b", "one")+container("c", "one")), pod("p", "", container("c", "one")+container("b", "one")), []Field{
			{"spec.containers (order)", []any{"a", "b", "c"}, []any{"a", "c", "b"}},
		}},
		"items by place": {pod("p", "", "    args: [x, z]\n"), pod("p", "", "    args: [x, w, z]\n"), nil},
		"a secret": {secret + "data: {same: c2FtZQ==, other: aGlkZGVuMQ==, gone: aGlkZGVuMg==}\n", strings.Replace(secret, "hidden1, plain: a", "hidden3, plain: b", 1) + "data: {same: c2FtZQ==, other: aGlkZGVuNA==}\nstringData: {new: hidden5}\n", []Field{
			{"data.gone", "***", nil},
			{"data.other", "*** (before)", "*** (after)"},
			{"metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]", "*** (before)", "*** (after)"},
			{"metadata.annotations.plain", "a", "b"},
			{"stringData", nil, map[string]any{"new": "***"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.want == nil {
				test.before = strings.Replace(test.before, "  - {name: a, image: one}\n", "  - name: a\n    image: one\n", 1)
				test.after = strings.Replace(test.after, "  - {name: a, image: one}\n", "  - name: a\n    image: one\n", 1)
				test.want = []Field{{"spec.containers[0].args[1]", "z", "w"}, {"spec.containers[0].args[2]", nil, "z"}}
			}
			got := fields(documents(t, "a.yaml", test.before)[0], documents(t, "a.yaml", test.after)[0])
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("got (-), want (+):\n%s", diff)
			}
		})
	}
}
