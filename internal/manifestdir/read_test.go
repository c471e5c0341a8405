package manifestdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// word is a manifest.
func word(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
}

// tree writes files and returns the folder, which is also the current one.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lines shows a set as documents in force, then faults, then what is ignored.
func lines(s Set) []string {
	var all []string
	for _, d := range s.Documents {
		all = append(all, d.File+" "+d.Key.Name)
	}
	for _, f := range s.Faults {
		all = append(all, "wrong "+f.File+" "+string(f.Reason))
	}
	for _, name := range s.Ignored {
		all = append(all, "ignored "+name)
	}
	return all
}

func TestRead(t *testing.T) {
	files := map[string]string{
		"m/a.yaml": word("a"), "m/a.yaml.bak": word("a"), "m/.b.yaml": word("b"), "m/sub/c.yml": word("c"), "m/sub/d.json": "{",
		"other/a.yaml": word("a"), "other/e.yaml": word("e"), "f.txt": word("f"),
	}
	for name, test := range map[string]struct {
		cfg       ReadConfig
		manifests int
		want      []string
	}{
		"a folder, named from the top":    {ReadConfig{Dir: "m", Recursive: true}, 3, []string{"a.yaml a", "sub/c.yml c", "wrong sub/d.json Syntax", "ignored a.yaml.bak"}},
		"a folder, named as it was given": {ReadConfig{Paths: []string{"./m/"}, Recursive: true}, 3, []string{"m/a.yaml a", "m/sub/c.yml c", "wrong m/sub/d.json Syntax", "ignored m/a.yaml.bak"}},
		"no nested folders":               {ReadConfig{Paths: []string{"m"}}, 1, []string{"m/a.yaml a", "ignored m/a.yaml.bak", "ignored m/sub/"}},
		"one name in two folders":         {ReadConfig{Paths: []string{"m", "other"}}, 3, []string{"m/a.yaml a", "other/e.yaml e", "wrong other/a.yaml Duplicate", "ignored m/a.yaml.bak", "ignored m/sub/"}},
		"a folder twice":                  {ReadConfig{Paths: []string{"m", "m/"}}, 1, []string{"m/a.yaml a", "ignored m/a.yaml.bak", "ignored m/sub/"}},
		"files":                           {ReadConfig{Paths: []string{"other/e.yaml", "m/a.yaml"}}, 2, []string{"m/a.yaml a", "other/e.yaml e"}},
		"a file twice":                    {ReadConfig{Paths: []string{"other/e.yaml", "./other/e.yaml"}}, 1, []string{"other/e.yaml e"}},
		"a file that is ignored":          {ReadConfig{Paths: []string{"f.txt"}}, 1, []string{"wrong f.txt Refused"}},
		"standard input":                  {ReadConfig{Stdin: []byte(word("g"))}, 1, []string{"- g"}},
	} {
		t.Run(name, func(t *testing.T) {
			tree(t, files)
			test.cfg.Parser = parser
			set, manifests, err := Read(test.cfg)
			if err != nil || manifests != test.manifests {
				t.Errorf("%d manifests, %v; want %d", manifests, err, test.manifests)
			}
			if diff := cmp.Diff(lines(set), test.want); diff != "" {
				t.Errorf("got (-), want (+):\n%s", diff)
			}
		})
	}
}

func TestReadOfWhatIsNotThere(t *testing.T) {
	tree(t, nil)
	if _, _, err := Read(ReadConfig{Paths: []string{"none.yaml"}, Parser: parser}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file: %v", err)
	}
	if _, _, err := Read(ReadConfig{Paths: []string{""}, Parser: parser}); err == nil || !strings.Contains(err.Error(), "a path is empty") {
		t.Errorf("no name: %v", err)
	}
	if _, _, err := Read(ReadConfig{Dir: "none", Parser: parser}); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a folder: %v", err)
	}
}

// TestReadNamesTheTrouble holds that what is said to do about a path that
// cannot be read is about that trouble.
func TestReadNamesTheTrouble(t *testing.T) {
	dir := tree(t, nil)
	must(t, os.Symlink("nowhere.yaml", filepath.Join(dir, "away.yaml")))
	must(t, os.Symlink("loop.yaml", filepath.Join(dir, "loop.yaml")))
	set, _, err := Read(ReadConfig{Paths: []string{"."}, Parser: parser})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range set.Faults {
		got[f.File] = f.Message + "; " + f.Hint
	}
	want := map[string]string{
		"away.yaml": "a link to a file that is not there; bring the file back or remove the link; what ran stays",
		"loop.yaml": "cannot be read: stat: too many levels of symbolic links; it is a link that leads back to itself: remove it; what ran stays",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got (-), want (+):\n%s", diff)
	}
}

// TestReadContinues holds that what is in force stays where its file is broken,
// and goes at once where its document is gone.
func TestReadContinues(t *testing.T) {
	tree(t, map[string]string{"a.yaml": word("a") + "dta: {}\n", "b.yaml": word("b"), "copy.yaml": word("b") + "data: {x: one}\n"})
	var before []manifest.Document
	for name, text := range map[string]string{"a.yaml": word("a"), "copy.yaml": word("b") + "data: {x: one}\n", "gone.yaml": word("c")} {
		before = append(before, parser.Parse(name, []byte(text)).Documents...)
	}
	set, _, err := Read(ReadConfig{Dir: ".", Parser: parser, InForce: before})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a.yaml a", "copy.yaml b", "wrong a.yaml UnknownField", "wrong b.yaml Duplicate"}
	if diff := cmp.Diff(lines(set), want); diff != "" {
		t.Errorf("got (-), want (+):\n%s", diff)
	}
	if len(set.Kept) != 1 || set.Kept[0].Name != "a" {
		t.Errorf("kept: %v", set.Kept)
	}
}
