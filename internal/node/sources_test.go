package node

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsource"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
)

const twoDocuments = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: c, image: i}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: word}
`

func TestFolderSourceStates(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		state manifestdir.State
		want  control.SourceState
	}{
		"read":                         {manifestdir.State{LastGood: now, Set: manifestdir.Set{Known: true}}, control.SourceGood},
		"read, and not any more":       {manifestdir.State{LastGood: now, Failed: "gone", Set: manifestdir.Set{Known: true}}, control.SourceFailing},
		"not read in this run":         {manifestdir.State{Failed: "gone", Set: manifestdir.Set{Known: true}}, control.SourceRestored},
		"not looked at yet":            {manifestdir.State{Set: manifestdir.Set{Known: true}}, control.SourceRestored},
		"never read, in no run at all": {manifestdir.State{Failed: "gone"}, control.SourceSilent},
	} {
		t.Run(name, func(t *testing.T) {
			if got := folderSource("/m", "n", test.state); got.State != test.want {
				t.Errorf("got %q, want %q", got.State, test.want)
			}
		})
	}
}

func TestFolderSource(t *testing.T) {
	docs := manifest.New().Parse("a.yaml", []byte(twoDocuments)).Documents
	got := folderSource("/m", "Edge-1", manifestdir.State{LastGood: time.Now(), Set: manifestdir.Set{
		Known: true, Documents: docs, Kept: []manifest.Key{docs[1].Key}, Ignored: []string{"web.yaml.bak", "more/"},
		Faults: []manifest.Fault{{File: "b.yaml", Line: 3, Reason: manifest.ReasonUnknownField, Message: "unknown field", Suggestion: "args", Hint: "mend it"}},
	}})
	got.LastGood = time.Time{}
	want := control.Source{
		Name: "file", Place: "/m", State: control.SourceGood,
		Objects: []control.SourceObject{
			{Kind: "Pod", Namespace: "default", Name: "web", Pod: "web-edge-1", Place: "a.yaml:1"},
			{Kind: "ConfigMap", Namespace: "default", Name: "word", Place: "a.yaml:8", Kept: true},
		},
		Faults: []control.Fault{{File: "b.yaml", Line: 3, Reason: "UnknownField", Message: "unknown field", Hint: `did you mean "args"? mend it`}},
		Ignored: []control.IgnoredFile{
			{File: "web.yaml.bak", Reason: "its name is not that of a manifest: those end in .yaml, .yml or .json"},
			{File: "more/", Reason: "nested folders are not read here"},
		},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got (-), want (+):\n%s", diff)
	}
}

func TestOfflineSources(t *testing.T) {
	in := stopped(t, Config{NodeName: "edge-1", ManifestDir: "/m"})
	shown := func() control.Source {
		t.Helper()
		r, err := Offline(in)
		if err != nil || len(r.Sources) != 1 {
			t.Fatalf("got %+v, %v", r, err)
		}
		return r.Sources[0]
	}
	if s := shown(); s.State != control.SourceSilent || len(s.Objects) != 0 {
		t.Errorf("nothing saved: %+v", s)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(in.Path("state", "manifests.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"version":1,"documents":[{"file":"a.yaml","line":8,"written":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"word","namespace":"default"}}}]}`)
	if s := shown(); s.State != control.SourceRestored || len(s.Objects) != 1 || s.Objects[0].Place != "a.yaml:8" || s.Place != "/m" {
		t.Errorf("one document saved: %+v", s)
	}
	write(`{"version":`)
	if s := shown(); s.State != control.SourceSilent || !strings.Contains(s.Message, "manifests.json") {
		t.Errorf("damaged: %+v", s)
	}
}

func TestAPISource(t *testing.T) {
	now := time.Now()
	pod := func(source, namespace, name string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{staticpod.SourceAnnotation: source}}}
	}
	pods := []*v1.Pod{pod("api", "default", "z"), pod("file", "default", "web-edge-1"), pod("api", "default", "a"), pod("api", "app", "y")}
	got := apiSource("127.0.0.1:6443", pods, podsource.State{LastGood: now, Failed: "away", Since: now})
	want := control.Source{
		Name: "api", Place: "https://127.0.0.1:6443", State: control.SourceFailing, LastGood: now, Message: "away", Since: now,
		Objects: []control.SourceObject{{Kind: "Pod", Namespace: "app", Name: "y"}, {Kind: "Pod", Namespace: "default", Name: "a"}, {Kind: "Pod", Namespace: "default", Name: "z"}},
		Faults:  []control.Fault{},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got (-), want (+):\n%s", diff)
	}
	for state, want := range map[podsource.State]control.SourceState{
		{LastGood: now}:                  control.SourceGood,
		{Restored: true, Failed: "away"}: control.SourceRestored,
		{Failed: "away"}:                 control.SourceSilent,
		{}:                               control.SourceSilent,
	} {
		if got := apiSource("", nil, state).State; got != want {
			t.Errorf("%+v: got %q, want %q", state, got, want)
		}
	}
	restored := apiSource("", nil, podsource.State{Restored: true, RestoredFrom: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Failed: "away"})
	if got, want := restored.Message, "pods run from the checkpoint of 2026-01-02T03:04:05Z: away"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLeftOutIsMarked holds that a pod of a static source that gives way to
// another is marked, and one of the API, which runs beside it, is not.
func TestLeftOutIsMarked(t *testing.T) {
	sources := []control.Source{
		{Name: "file", Objects: []control.SourceObject{
			{Kind: "Pod", Namespace: "default", Name: "web", Pod: "web-edge-1"},
			{Kind: "Pod", Namespace: "app", Name: "web", Pod: "web-edge-1"},
			{Kind: "ConfigMap", Namespace: "default", Name: "web-edge-1"},
		}},
		{Name: "http", Objects: []control.SourceObject{{Kind: "Pod", Namespace: "default", Name: "web", Pod: "web-edge-1"}}},
		{Name: "api", Objects: []control.SourceObject{{Kind: "Pod", Namespace: "default", Name: "web-edge-1"}}},
	}
	faults := []fault.Fault{{Source: "file", Object: "Pod default/web-edge-1", Message: "a"}, {Source: "api", Object: "Pod default/web-edge-1", Message: "b"}}
	var got []bool
	for _, s := range addSourceFaults(sources, faults) {
		for _, o := range s.Objects {
			got = append(got, o.LeftOut)
		}
	}
	if diff := cmp.Diff(got, []bool{true, false, false, false, false}); diff != "" {
		t.Errorf("got (-), want (+):\n%s", diff)
	}
}

// TestManifestFolderIsMadeOnce holds that a folder that is away at a start is
// not taken for an empty one.
func TestManifestFolderIsMadeOnce(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		made  bool
	}{
		"nothing was in force": {nil, true}, "something was": {map[string]string{"a.yaml": twoDocuments}, false},
	} {
		t.Run(name, func(t *testing.T) {
			in, dir := ran(t, test.files)
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := (&node{cfg: Config{ManifestDir: dir}, in: in}).makeManifestFolder(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(dir); (err == nil) != test.made {
				t.Errorf("made: %v, want %v", err == nil, test.made)
			}
		})
	}
}

func TestSourceFaults(t *testing.T) {
	since := time.Now()
	got := addSourceFaults([]control.Source{{Name: "file"}, {Name: "api"}}, []fault.Fault{
		{Object: "Pod default/web-edge-1", Message: "left out", Since: since, Source: "api"}, {Object: "Node edge-1", Message: "not well"},
	})
	want := []control.Source{{Name: "file"}, {Name: "api", Faults: []control.Fault{
		{Reason: "Duplicate", Object: "Pod default/web-edge-1", Message: "left out", Since: since},
	}}}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got (-), want (+):\n%s", diff)
	}
}
