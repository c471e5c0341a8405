package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// ran returns an instance that had these files in force, and its folder of them.
func ran(t *testing.T, files map[string]string) (*instance.Instance, string) {
	t.Helper()
	in := stopped(t, Config{NodeName: "edge-1"})
	write(t, in.ManifestDir(), files)
	ctx, cancel := context.WithCancel(t.Context())
	err := manifestdir.New(manifestdir.Config{
		Dir: in.ManifestDir(), Recursive: true, Parser: manifest.New(), Check: kubelet.NewCheck("edge-1"), Log: slog.New(slog.DiscardHandler),
		StateFile: manifestState(in), Publish: func(context.Context, manifestdir.Set) { cancel() },
	}).Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return in, in.ManifestDir()
}

// summary shows a difference in few words.
func summary(d control.Difference) []string {
	var all []string
	for _, c := range d.Changes {
		line := string(c.Action) + " " + c.Object + " " + c.Place
		for _, f := range c.Fields {
			line += " " + f.Path
		}
		all = append(all, line)
	}
	for _, f := range d.Faults {
		all = append(all, "fault "+f.File+" "+f.Reason)
	}
	return all
}

func TestDiff(t *testing.T) {
	const (
		pod    = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: c, image: one}\n"
		object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: word}\ndata: {a: b}\n"
		secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {a: b}\n"
	)
	two := strings.Replace(pod, "one", "two", 1)
	broken := strings.Replace(pod, "containers", "containerz", 1)
	for name, test := range map[string]struct {
		files map[string]string // beside those in force
		paths []string
		want  []string
	}{
		"the same folder":      {files: map[string]string{"new/web.yaml": pod, "new/a/o.yaml": object + "---\n" + secret}, paths: []string{"new"}, want: []string{"unchanged ConfigMap default/word a/o.yaml:1", "unchanged Pod default/web web.yaml:1", "unchanged Secret default/key a/o.yaml:6"}},
		"an edit and a loss":   {files: map[string]string{"new/web.yaml": two, "new/n.yaml": strings.Replace(secret, "key", "new", 1), "new/s.yaml": secret}, paths: []string{"new"}, want: []string{"remove ConfigMap default/word objects.yaml:1", "update Pod default/web web.yaml:1 spec.containers[0].image", "unchanged Secret default/key s.yaml:1", "add Secret default/new n.yaml:1"}},
		"a broken file":        {files: map[string]string{"new/web.yaml": broken, "new/objects.yaml": object + "---\n" + secret}, paths: []string{"new"}, want: []string{"unchanged ConfigMap default/word objects.yaml:1", "keep Pod default/web web.yaml:1", "unchanged Secret default/key objects.yaml:6", "fault web.yaml UnknownField"}},
		"a copy":               {files: map[string]string{"new/web.yaml": pod, "new/copy.yaml": two, "new/objects.yaml": object + "---\n" + secret}, paths: []string{"new"}, want: []string{"unchanged ConfigMap default/word objects.yaml:1", "unchanged Pod default/web web.yaml:1", "unchanged Secret default/key objects.yaml:6", "fault copy.yaml Duplicate"}},
		"a file":               {files: map[string]string{"elsewhere.yaml": two}, paths: []string{"elsewhere.yaml"}, want: []string{"update Pod default/web elsewhere.yaml:1 spec.containers[0].image"}},
		"a broken file alone":  {files: map[string]string{"elsewhere.yaml": broken}, paths: []string{"elsewhere.yaml"}, want: []string{"fault elsewhere.yaml UnknownField"}},
		"its own folder":       {want: []string{"unchanged ConfigMap default/word objects.yaml:1", "unchanged Pod default/web web.yaml:1", "unchanged Secret default/key objects.yaml:6"}},
		"a file of the folder": {files: map[string]string{"manifests/web.yaml": broken}, want: []string{"unchanged ConfigMap default/word objects.yaml:1", "keep Pod default/web web.yaml:1", "unchanged Secret default/key objects.yaml:6", "fault web.yaml UnknownField"}},
	} {
		t.Run(name, func(t *testing.T) {
			in, _ := ran(t, map[string]string{"web.yaml": pod, "objects.yaml": object + "---\n" + secret})
			t.Chdir(in.Root)
			write(t, ".", test.files)
			got, err := Diff(in, test.paths, nil)
			if err != nil || got.Running || got.Node != "edge-1" {
				t.Fatalf("got %+v, %v", got, err)
			}
			if diff := cmp.Diff(summary(got), test.want); diff != "" {
				t.Errorf("got (-), want (+):\n%s", diff)
			}
			if want := name == "the same folder" || name == "its own folder"; got.None() != want {
				t.Errorf("no difference: got %v, want %v", got.None(), want)
			}
		})
	}
}

func TestDiffCannotTell(t *testing.T) {
	in, dir := ran(t, nil)
	for name, paths := range map[string][]string{
		"nothing there": {filepath.Join(dir, "none.yaml")}, "two folders": {dir, in.Root},
	} {
		if _, err := Diff(in, paths, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	write(t, in.Path("state"), map[string]string{"manifests.json": `{"version":99}`})
	if _, err := Diff(in, nil, nil); err == nil || !strings.Contains(err.Error(), "99") {
		t.Errorf("of a newer release: %v", err)
	}
}

// TestDiffTellsClashes compares a folder with a node to which other sources give
// pods of the same names.
func TestDiffTellsClashes(t *testing.T) {
	in, dir := ran(t, nil)
	pod := func(name string) string { return strings.Replace(twoDocuments, "name: web", "name: "+name, 1) }
	write(t, dir, map[string]string{"a.yaml": pod("web")})
	for name, test := range map[string]struct {
		source control.Source
		want   string
	}{
		"none":        {control.Source{}, "the pod starts"},
		"the API's":   {control.Source{Name: "api", Objects: []control.SourceObject{{Kind: "Pod", Namespace: "default", Name: "web-edge-1"}}}, "the pod starts, but the API does not show it, as it has a pod default/web-edge-1 itself"},
		"a URL's":     {control.Source{Name: "http", Objects: []control.SourceObject{{Kind: "Pod", Namespace: "default", Name: "web", Pod: "web-edge-1"}}}, "the pod is left out, as source http has a pod default/web-edge-1, which is in force"},
		"its own":     {control.Source{Name: "file", Objects: []control.SourceObject{{Kind: "Pod", Namespace: "default", Name: "web", Pod: "web-edge-1"}}}, "the pod starts"},
		"another one": {control.Source{Name: "api", Objects: []control.SourceObject{{Kind: "Pod", Namespace: "app", Name: "web-edge-1"}}}, "the pod starts"},
	} {
		got, err := Diff(in, nil, []control.Source{test.source})
		if err != nil || len(got.Changes) != 2 || got.Changes[1].Effect != test.want {
			t.Errorf("%s: got %+v, %v; want %s", name, got.Changes, err, test.want)
		}
	}
}
