package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
)

// corpus writes the manifests with one mistake each, and some more, into a
// folder. It returns the folder.
func corpus(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	corpus, err := txtar.ParseFile(filepath.Join("..", "manifest", "testdata", "corpus.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"good.yaml": twoDocuments, "sub/copy.yaml": twoDocuments, "good.yaml.bak": twoDocuments, ".hidden.yaml": "{",
		"pod-unsupported.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: u}\nspec:\n  resourceClaims: [{name: gpu, resourceClaimName: gpu}]\n  containers:\n  - {name: c, image: i}\n",
		"pod-sysctl.yaml":      "apiVersion: v1\nkind: Pod\nmetadata: {name: s}\nspec:\n  securityContext: {sysctls: [{name: net.core.somaxconn, value: '1'}]}\n  containers:\n  - {name: c, image: i}\n",
		"pod-volume.yaml":      "apiVersion: v1\nkind: Pod\nmetadata: {name: v}\nspec:\n  volumes:\n  - {name: vol, iscsi: {targetPortal: 192.0.2.1, iqn: 'iqn.2001-04.example:disk', lun: 0}}\n  containers:\n  - {name: c, image: i}\n",
		"pod-elsewhere.yaml":   "apiVersion: v1\nkind: Pod\nmetadata: {name: e}\nspec:\n  nodeName: other\n  containers:\n  - {name: c, image: i}\n",
	}
	for i := 0; i < len(corpus.Files); i += 2 {
		files[corpus.Files[i].Name] = string(corpus.Files[i].Data)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestCheckSaysWhatANodeSays holds that a folder is checked as a node would
// read it.
func TestCheckSaysWhatANodeSays(t *testing.T) {
	dir := corpus(t)
	ctx, cancel := context.WithCancel(t.Context())
	var set manifestdir.Set
	err := manifestdir.New(manifestdir.Config{
		Dir: dir, Recursive: true, Parser: manifest.New(), Check: kubelet.NewCheck("edge-1"), Log: slog.New(slog.DiscardHandler),
		Publish: func(_ context.Context, s manifestdir.Set) { set = s; cancel() },
	}).Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	got, err := Check(CheckConfig{NodeName: "edge-1", Paths: []string{"."}})
	if err != nil {
		t.Fatal(err)
	}
	want := control.Check{Documents: len(set.Documents), Files: got.Files, Faults: reportFaults(set.Faults), Ignored: ignoredFiles(set.Ignored)}
	if diff := cmp.Diff(got, want, cmpopts.IgnoreTypes(time.Time{})); diff != "" {
		t.Errorf("check (-), node (+):\n%s", diff)
	}
	if got.Documents < 2 || got.Files < 55 || len(got.Ignored) != 1 {
		t.Errorf("%d good documents in %d files, ignored: %v", got.Documents, got.Files, got.Ignored)
	}
	for _, name := range []string{"pod-unsupported.yaml", "pod-sysctl.yaml", "pod-volume.yaml", "pod-elsewhere.yaml", "sub/copy.yaml"} {
		if !slices.ContainsFunc(got.Faults, func(f control.Fault) bool { return f.File == name }) {
			t.Errorf("no fault in %s", name)
		}
	}
}

func TestCheckNamesTheField(t *testing.T) {
	dir := corpus(t)
	t.Chdir(dir)
	for file, want := range map[string]control.Fault{
		"pod-unsupported.yaml": {File: "pod-unsupported.yaml", Line: 5, Reason: "Refused", Object: "Pod default/u", Field: "spec.resourceClaims", Message: "this version does not support it", Hint: "leave the field out"},
		"pod-volume.yaml":      {File: "pod-volume.yaml", Line: 6, Reason: "Refused", Object: "Pod default/v", Field: "spec.volumes[0]", Message: "iscsi: this version cannot mount such volumes", Hint: "leave the field out"},
		"pod-sysctl.yaml":      {File: "pod-sysctl.yaml", Line: 1, Reason: "Refused", Object: "Pod default/s", Message: `forbidden sysctl: "net.core.somaxconn" not allowlisted`},
	} {
		got, err := Check(CheckConfig{NodeName: "edge-1", Paths: []string{file}})
		if err != nil || len(got.Faults) != 1 {
			t.Errorf("%s: %+v, %v", file, got, err)
			continue
		}
		if diff := cmp.Diff(got.Faults[0], want); diff != "" {
			t.Errorf("%s: got (-), want (+):\n%s", file, diff)
		}
	}
}
