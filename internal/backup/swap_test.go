package backup

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree makes files of a map, path to content.
func tree(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for path, data := range files {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func readTree(t *testing.T, root string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		got[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

var (
	before = map[string]string{"etcd/db": "old", "manifests/a.yaml": "old", "manifests/b.yaml": "old", "logs/l": "kept"}
	staged = map[string]string{"etcd/db": "new", "manifests/a.yaml": "new", "sub/certs/c": "new"}
	paths  = []string{"etcd", "manifests", "sub/certs"}
	after  = map[string]string{
		"etcd/db": "new", "manifests/a.yaml": "new", "sub/certs/c": "new", "logs/l": "kept",
		"replaced-20270102T150405Z/etcd/db": "old", "replaced-20270102T150405Z/manifests/a.yaml": "old",
		"replaced-20270102T150405Z/manifests/b.yaml": "old",
	}
)

func TestCommit(t *testing.T) {
	root := t.TempDir()
	tree(t, root, before)
	s, err := NewStage(root)
	if err != nil {
		t.Fatal(err)
	}
	tree(t, s.Path(), staged)
	aside, err := s.Commit(paths, created)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(root, "replaced-20270102T150405Z"); aside != want {
		t.Errorf("aside: got %q, want %q", aside, want)
	}
	if diff := cmp.Diff(readTree(t, root), after); diff != "" {
		t.Error(diff)
	}
}

// A restore that is killed has happened as a whole or not at all, whatever it
// was doing.
func TestKilled(t *testing.T) {
	rename := func(t *testing.T, root, from, to string) {
		t.Helper()
		to = filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(root, from), to); err != nil {
			t.Fatal(err)
		}
	}
	const aside, stage = "replaced-20270102T150405Z/", ".restore/new/"
	steps := []func(*testing.T, string){
		func(t *testing.T, root string) {
			tree(t, root, map[string]string{".restore/plan.json": `{"version": 1, "paths": ["etcd", "manifests", "sub/certs"], "aside": "` + aside + `"}`})
		},
		func(t *testing.T, root string) { rename(t, root, "etcd", aside+"etcd") },
		func(t *testing.T, root string) { rename(t, root, stage+"etcd", "etcd") },
		func(t *testing.T, root string) { rename(t, root, "manifests", aside+"manifests") },
		func(t *testing.T, root string) { rename(t, root, stage+"manifests", "manifests") },
		func(t *testing.T, root string) { rename(t, root, stage+"sub/certs", "sub/certs") },
	}
	for killed := range len(steps) + 1 {
		root := t.TempDir()
		tree(t, root, before)
		s, err := NewStage(root)
		if err != nil {
			t.Fatal(err)
		}
		tree(t, s.Path(), staged)
		for _, step := range steps[:killed] {
			step(t, root)
		}
		if err := Finish(root); err != nil {
			t.Fatal(err)
		}
		want := after
		if killed == 0 { // no plan yet
			want = before
			if err := s.Discard(); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(readTree(t, root), want); diff != "" {
			t.Errorf("killed after %d steps:\n%s", killed, diff)
		}
	}
}

func TestAside(t *testing.T) {
	root := t.TempDir()
	tree(t, root, map[string]string{"etcd/db": "old", "pki/ca.key": "kept"})
	aside, err := Aside(root, "etcd", created)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(root, "replaced-20270102T150405Z", "etcd"); aside != want {
		t.Errorf("got %q, want %q", aside, want)
	}
	if diff := cmp.Diff(readTree(t, root), map[string]string{"replaced-20270102T150405Z/etcd/db": "old", "pki/ca.key": "kept"}); diff != "" {
		t.Error(diff)
	}
}
