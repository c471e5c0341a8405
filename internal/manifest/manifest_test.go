package manifest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const webPod = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: holdfast.local/demo:latest
`

func TestParse(t *testing.T) {
	tests := []struct {
		name, file, in string
		want           []string // documents as "line: key"
	}{
		{"one pod", "a.yaml", webPod, []string{"1: Pod default/web"}},
		{"comments first", "a.yaml", "# hello\n\n---\n" + webPod, []string{"4: Pod default/web"}},
		{"only comments", "a.yaml", "# hello\n---\n# nothing\n...\n", nil},
		{"directive", "a.yaml", "%YAML 1.1\n---\n" + webPod, []string{"3: Pod default/web"}},
		{"several documents", "a.yaml", webPod + "---\n" + webPod + "--- # third\n" + webPod, []string{"1: Pod default/web", "10: Pod default/web", "19: Pod default/web"}},
		{"carriage returns", "a.yaml", strings.ReplaceAll(webPod+"---\n"+webPod, "\n", "\r\n"), []string{"1: Pod default/web", "10: Pod default/web"}},
		{"json", "a.json", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`, []string{"1: Namespace x"}},
		{"json in a yaml file", "a.yaml", "\n{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\n\t\"metadata\":{\"name\":\"x\", \"annotations\": {\"a\": \"\\ud83d\\ude00\\/\"}}}\n", []string{"2: Namespace x"}},
		{"flow documents", "a.yaml", "{apiVersion: v1, kind: Namespace, metadata: {name: x}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: why}}\n", []string{"1: Namespace x", "3: Namespace why"}},
		{"list", "a.yaml", "apiVersion: v1\nkind: List\nmetadata: {}\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: x}\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: s, namespace: z}\n", []string{"5: Namespace x", "8: Secret z/s"}},
		{"empty list", "a.yaml", "apiVersion: v1\nkind: List\nitems: []\n", nil},
		{"pod list", "a.json", `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}]}`, []string{"1: Pod default/a"}},
		{"what kubectl prints", "a.yaml", webPod + "status:\n  phase: Running\n", []string{"1: Pod default/web"}},
		{"anchors and merges", "a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  labels: &l {a: b}\n  annotations:\n    <<: *l\n    c: d\n", []string{"1: ConfigMap default/c"}},
		{"yes is a boolean where one is wanted", "a.yaml", webPod + "    stdin: yes\n", []string{"1: Pod default/web"}},
		{"privileged", "a.yaml", webPod + "    securityContext: {privileged: true}\n", []string{"1: Pod default/web"}},
		{"braces of YAML", "a.yaml", "{apiVersion: v1, kind: List, items: [\n  {apiVersion: v1, kind: Namespace, metadata: {name: x}}]}", []string{"2: Namespace x"}},
		{"JSON with tabs", "a.yaml", "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Namespace\",\n\t\"metadata\": {\"name\": \"x\"}}", []string{"1: Namespace x"}},
		{"other groups", "a.yaml", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: s}\nprovisioner: x.example/y\n---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: p}\nvalue: 5\n", []string{"1: StorageClass s", "6: PriorityClass p"}},
	}
	p := New()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := p.Parse(tt.file, []byte(tt.in))
			var got []string
			for _, d := range r.Documents {
				got = append(got, strings.TrimSpace(strings.Join([]string{itoa(d.Line), d.Key.String()}, ": ")))
			}
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("documents (-got +want):\n%s", diff)
			}
			for _, f := range r.Faults {
				t.Errorf("fault: %s", f)
			}
		})
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func TestParseFaultsOfFiles(t *testing.T) {
	tests := []struct{ name, file, in, want string }{
		{"empty", "a.yaml", "", "a.yaml:1: the file is empty; delete the file to remove what it held"},
		{"white space", "a.yaml", " \n\n", "a.yaml:1: the file is empty; delete the file to remove what it held"},
		{"too large", "a.yaml", strings.Repeat("#", MaxFileSize+1), "a.yaml:1: larger than 10 MiB; split it into several files"},
		{"json cut off", "a.json", "{\n\"kind\":\n\"Pod\"", "a.json:3: not valid JSON: the text ends too early; check brackets, commas and quotes near this line"},
		{"text after json", "a.json", "{}\n{}", "a.json:1: not valid JSON: text after the JSON value; check brackets, commas and quotes near this line"},
		{"json is not yaml", "a.json", "{kind: Pod}", "a.json:1: not valid JSON: invalid character 'k'; check brackets, commas and quotes near this line"},
		{"broken json in a YAML file", "a.yaml", "{\n\"kind\":\n\"Pod\"", "a.yaml:3: not valid JSON: the text ends too early; check brackets, commas and quotes near this line"},
		{"a workload in braces", "a.yaml", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}", "a.yaml:1: Deployment d: kind: Deployment is not supported in the manifest folder; write its spec.template as a Pod"},
		{"gates", "a.yaml", webPod + "  schedulingGates: [{name: example.com/x}]\n", "a.yaml:9: Pod default/web: spec.schedulingGates: forbidden: a pod from a file is on its node already, so nothing would wait for them; leave this field out"},
		{"stop signal without os", "a.yaml", webPod + "    lifecycle: {stopSignal: SIGINT}\n", "a.yaml:9: Pod default/web: spec.containers[0].lifecycle.stopSignal: forbidden: may not be set for containers with empty `spec.os.name`; write spec.os.name: linux"},
		{"mounts for the host without privileges", "a.yaml", webPod + "    volumeMounts:\n    - {name: v, mountPath: /v, mountPropagation: Bidirectional}\n  volumes: [{name: v, emptyDir: {}}]\n", "a.yaml:9: Pod default/web: spec.containers[0].volumeMounts.mountPropagation: forbidden: Bidirectional mount propagation is available only to privileged containers; leave this field out"},
		{"copy of what ends", "a.yaml", strings.Replace(webPod, "  name: web\n", "  name: web\n  deletionTimestamp: \"2020-01-01T00:00:00Z\"\n", 1), "a.yaml:5: Pod default/web: metadata.deletionTimestamp: is set by the API alone; leave it out"},
		{"json duplicate", "a.json", "{\"apiVersion\":\"v1\",\n\"kind\":\"Namespace\",\n\"kind\":\"Namespace\",\"metadata\":{\"name\":\"x\"}}", "a.json:3: Namespace x: kind: duplicate key, first written at line 2; keep one of the two"},
		{"infinite", "a.yaml", "a: .inf\n", "a.yaml:1: the number .inf has no JSON form; write a finite number, or quotes around text"},
	}
	p := New()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := p.Parse(tt.file, []byte(tt.in))
			if len(r.Faults) != 1 || len(r.Documents) != 0 {
				t.Fatalf("got %v and %d documents, want one fault", r.Faults, len(r.Documents))
			}
			if got := r.Faults[0].String(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A mistake in one document or item costs only itself.
func TestParseKeepsTheRest(t *testing.T) {
	in := webPod + "---\n\tbroken\n---\n" + strings.ReplaceAll(webPod, "web", "other") +
		"---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: x}\n- kind: Nonsense\n"
	r := New().Parse("a.yaml", []byte(in))
	var got []string
	for _, d := range r.Documents {
		got = append(got, d.Key.String())
	}
	if diff := cmp.Diff(got, []string{"Pod default/web", "Pod default/other", "Namespace x"}); diff != "" {
		t.Errorf("documents (-got +want):\n%s", diff)
	}
	if len(r.Faults) != 2 {
		t.Errorf("got %v, want two faults", r.Faults)
	}
}

func TestDocument(t *testing.T) {
	in := "kind: Pod\napiVersion: v1\nmetadata:\n  creationTimestamp: null\n  resourceVersion: '5'\n  uid: abc\n  name: web\nspec:\n  containers:\n  - image: i\n    name: c\n    resources: {limits: {cpu: 0.5}}\nstatus: {phase: Failed}\n"
	p := New()
	r := p.Parse("a.yaml", []byte(in))
	if len(r.Documents) != 1 {
		t.Fatal(r.Faults)
	}
	d := r.Documents[0]
	want := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default","uid":"abc"},"spec":{"containers":[{"image":"i","name":"c","resources":{"limits":{"cpu":0.5}}}]}}`
	if got := string(d.Written); got != want {
		t.Errorf("Written:\ngot  %s\nwant %s", got, want)
	}
	pod := d.Object.(*corev1.Pod)
	if got, want := pod.Spec.RestartPolicy, corev1.RestartPolicyAlways; got != want {
		t.Errorf("defaulted restartPolicy: got %s, want %s", got, want)
	}
	if got := pod.Spec.Containers[0].Resources.Limits.Cpu(); got.Cmp(resource.MustParse("500m")) != 0 {
		t.Errorf("cpu limit: got %s, want 500m", got)
	}
	if pod.Status.Phase != "" {
		t.Errorf("got phase %s from a file", pod.Status.Phase)
	}
	if got, want := d.Fault(ReasonRefused, "spec.containers[0].image", "no", "").String(), "a.yaml:10: Pod default/web: spec.containers[0].image: no"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	again, err := p.Restore(d.File, d.Line, d.Written)
	if err != nil {
		t.Fatal(err)
	}
	if !again.Equal(d) {
		t.Errorf("restored %v, want %v", again.Key, d.Key)
	}
	if diff := cmp.Diff(again.Object, d.Object); diff != "" {
		t.Errorf("restored object (-got +want):\n%s", diff)
	}
}

// What an older release wrote down comes back even if it would be refused now.
func TestRestoreIsForgiving(t *testing.T) {
	d, err := New().Restore("a.yaml", 3, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"gone":1,"containers":[{"name":"BAD NAME"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := d.Object.(*corev1.Pod).Spec.Containers[0].Name, "BAD NAME"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := New().Restore("a.yaml", 3, []byte(`{"apiVersion":"v1"`)); err == nil {
		t.Error("cut-off bytes: no error")
	}
}

func TestIsManifest(t *testing.T) {
	for name, want := range map[string]bool{
		"web.yaml": true, "web.yml": true, "web.json": true, "web.pod.yaml": true,
		"web.yaml.bak": false, "web.yaml~": false, "web.yaml.orig": false, ".web.yaml": false, ".web.yaml.swp": false,
		"#web.yaml#": false, ".yaml": false, "web": false, "web.txt": false, "4913": false, "web.YAML": false,
	} {
		if got := IsManifest(name); got != want {
			t.Errorf("IsManifest(%q): got %v, want %v", name, got, want)
		}
	}
}

// FuzzParse checks that no input makes the parser fail other than by a fault,
// and that what it accepts can be written down and restored.
func FuzzParse(f *testing.F) {
	f.Add("a.yaml", []byte(webPod+"---\n"+webPod))
	f.Add("a.json", []byte(`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"}}]}`))
	f.Add("a.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: &m\n  name: c\n  labels: *m\n  <<: [*m, {a: b}]\n"))
	f.Add("a.yaml", []byte("apiVersion: v1\nkind: List\nmetadata: {}\nitems:\n- "+strings.ReplaceAll(webPod, "\n", "\n  ")+"\n- kind: Secret\n"))
	f.Add("a.json", []byte(`{"apiVersion":"v1","kind":"List","items":[]}`))
	f.Add("a.yaml", []byte("? [a]\n: b\n--- !!binary x\n"))
	p := New()
	f.Fuzz(func(t *testing.T, file string, data []byte) {
		r := p.Parse(file, data)
		for _, fault := range r.Faults {
			if fault.Line < 1 || fault.Message == "" {
				t.Errorf("a fault without line or message: %+v", fault)
			}
		}
		for _, d := range r.Documents {
			again, err := p.Restore(d.File, d.Line, d.Written)
			if err != nil || !again.Equal(d) {
				t.Errorf("restore %s: %v", d.Key, err)
			}
		}
	})
}

func TestParseStopsReporting(t *testing.T) {
	r := New().Parse("a.yaml", []byte(strings.Repeat("---\nkind: Nonsense\n", 1000)))
	if got, want := len(r.Faults), maxFileFaults+1; got != want {
		t.Fatalf("got %d faults, want %d", got, want)
	}
	if got, want := r.Faults[maxFileFaults].String(), "a.yaml:102: more faults follow; mend those before this line first"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A fault is the same one after an edit elsewhere that only moves lines.
func TestFaultIdentity(t *testing.T) {
	at := func(line int, message string) Fault {
		return Fault{File: "a.yaml", Line: line, Message: message}
	}
	tests := []struct {
		name string
		a, b Fault
		same bool
	}{
		{"its own line", at(1, "bad"), at(2, "bad"), true},
		{"the line of another file's document", at(1, "b.yaml:1 has it too"), at(1, "b.yaml:22 has it too"), true},
		{"a line of its own file", at(3, "first written at line 1"), at(4, "first written at line 2"), true},
		{"another file", at(1, "b.yaml:1 has it too"), at(1, "c.yaml:1 has it too"), false},
		{"another number", at(1, "port 1"), at(1, "port 2"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.a.Same(tt.b); got != tt.same {
				t.Errorf("same: got %v, want %v", got, tt.same)
			}
		})
	}
}

// TestNaming reads a file that is read once.
func TestNaming(t *testing.T) {
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {generateName: t-}\nspec: {containers: [{name: app, image: i}]}\n"
	p := New().Naming(func(prefix string) string { return prefix + "x" })
	r := p.Parse("f.yaml", []byte(text))
	if len(r.Faults) > 0 || len(r.Documents) != 1 {
		t.Fatalf("got %d documents, %v", len(r.Documents), r.Faults)
	}
	if got, want := r.Documents[0].Key.String(), "Pod default/t-x"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := r.Documents[0].Meta().GetName(); got != "t-x" {
		t.Errorf("the object's name is %q", got)
	}
}
