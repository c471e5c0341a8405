package atomicdir

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// file returns a file of mode 0644.
func file(data string) File { return File{Data: []byte(data), Mode: 0o644} }

// visible returns what a reader of dir sees: path → mode and content.
func visible(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	var walk func(sub string)
	walk = func(sub string) {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			name := filepath.Join(sub, entry.Name())
			if sub == "" && strings.HasPrefix(name, "..") {
				continue
			}
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if info.IsDir() {
				walk(name)
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			got[name] = fmt.Sprintf("%o %s", info.Mode().Perm(), data)
		}
	}
	walk("")
	return got
}

func TestWrite(t *testing.T) {
	type step struct {
		files       map[string]File
		want        map[string]string
		wantChanged bool
	}
	both := map[string]File{"a": file("1"), "sub/b": {Data: []byte("2"), Mode: 0o400}}
	wantBoth := map[string]string{"a": "644 1", "sub/b": "400 2"}
	tests := []struct {
		name  string
		steps []step
	}{
		{"empty", []step{{nil, map[string]string{}, true}, {nil, map[string]string{}, false}}},
		{"same again changes nothing", []step{{both, wantBoth, true}, {both, wantBoth, false}}},
		{"content", []step{{both, wantBoth, true}, {map[string]File{"a": file("x"), "sub/b": both["sub/b"]}, map[string]string{"a": "644 x", "sub/b": "400 2"}, true}}},
		{"mode alone", []step{{both, wantBoth, true}, {map[string]File{"a": {Data: []byte("1"), Mode: 0o600}, "sub/b": both["sub/b"]}, map[string]string{"a": "600 1", "sub/b": "400 2"}, true}}},
		{"file removed", []step{{both, wantBoth, true}, {map[string]File{"a": file("1")}, map[string]string{"a": "644 1"}, true}}},
		{"all removed", []step{{both, wantBoth, true}, {nil, map[string]string{}, true}}},
		{"file added in a folder", []step{{both, wantBoth, true}, {map[string]File{"a": file("1"), "sub/b": both["sub/b"], "sub/c": file("3")}, map[string]string{"a": "644 1", "sub/b": "400 2", "sub/c": "644 3"}, true}}},
		{"file becomes a folder", []step{{map[string]File{"a": file("1")}, map[string]string{"a": "644 1"}, true}, {map[string]File{"a/b": file("1")}, map[string]string{"a/b": "644 1"}, true}}},
		{"path is cleaned", []step{{map[string]File{"./a//b": file("1")}, map[string]string{"a/b": "644 1"}, true}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for i, s := range tt.steps {
				changed, err := Write(dir, s.files, Options{})
				if err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				if changed != s.wantChanged {
					t.Errorf("step %d: changed = %v, want %v", i, changed, s.wantChanged)
				}
				if diff := cmp.Diff(visible(t, dir), s.want); diff != "" {
					t.Errorf("step %d (-got +want):\n%s", i, diff)
				}
			}
		})
	}
}

func TestWriteRefuses(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]File
		want  string
	}{
		{"absolute", map[string]File{"/etc/passwd": file("")}, "absolute"},
		{"parent", map[string]File{"../x": file("")}, `starts with ".."`},
		{"parent inside", map[string]File{"a/../../x": file("")}, `starts with ".."`},
		{"hidden parent", map[string]File{"a/../b": file("")}, `contains ".."`},
		{"reserved name", map[string]File{"..data": file("")}, `starts with ".."`},
		{"nothing", map[string]File{"": file("")}, "empty"},
		{"dot", map[string]File{".": file("")}, "names no file"},
		{"file and folder", map[string]File{"a": file(""), "a/b": file("")}, "also the folder"},
		{"two spellings", map[string]File{"a/b": file("1"), "a//b": file("2")}, "given twice"},
		{"long name", map[string]File{strings.Repeat("x", 256): file("")}, "more than 255"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Write(dir, tt.files, Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %q in it", err, tt.want)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 0 {
				t.Errorf("wrote %v", entries)
			}
		})
	}
}

// A link that somebody planted in the folder must not lead a write out of it.
func TestWritePlantedLinks(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "a"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for link, target := range map[string]string{"a": filepath.Join(outside, "a"), "..data": outside, "..data_tmp": outside, "..old": outside} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Write(dir, map[string]File{"a": file("ours")}, Options{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(visible(t, dir), map[string]string{"a": "644 ours"}); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	if data, err := os.ReadFile(filepath.Join(outside, "a")); err != nil || string(data) != "mine" {
		t.Errorf("outside: %q, %v", data, err)
	}
}

func TestWriteInTheWay(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"empty", "full/of/it"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Write(dir, map[string]File{"empty": file("1")}, Options{}); err != nil {
		t.Error(err)
	}
	if _, err := Write(dir, map[string]File{"full": file("1")}, Options{}); err == nil || !strings.Contains(err.Error(), `"full" is in the way`) {
		t.Errorf("err = %v", err)
	}
}

// What a write leaves that was killed at any step does not stop the next one,
// and does not stay.
func TestWriteAfterCrash(t *testing.T) {
	one, two := map[string]File{"a": file("1"), "b": file("1")}, map[string]File{"a": file("2"), "c": file("2")}
	tests := []struct {
		name  string
		crash func(t *testing.T, dir string) error
	}{
		{"staged", func(_ *testing.T, dir string) error { return os.MkdirAll(filepath.Join(dir, "..2020_x", "sub"), 0o755) }},
		{"new link left", func(_ *testing.T, dir string) error { return os.Symlink("..2020_x", filepath.Join(dir, newLink)) }},
		{"published, names not linked", func(_ *testing.T, dir string) error { return os.Remove(filepath.Join(dir, "a")) }},
		{"data link dangles", func(t *testing.T, dir string) error {
			target, err := os.Readlink(filepath.Join(dir, dataLink))
			if err != nil {
				t.Fatal(err)
			}
			return os.RemoveAll(filepath.Join(dir, target))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := Write(dir, one, Options{}); err != nil {
				t.Fatal(err)
			}
			if err := tt.crash(t, dir); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := Write(dir, two, Options{}); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(visible(t, dir), map[string]string{"a": "644 2", "c": "644 2"}); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(entries) != 4 { // a, c, ..data and the folder
				t.Errorf("left over: %v", entries)
			}
		})
	}
}

func TestWriteOwner(t *testing.T) {
	testenv.Need(t, "root")
	dir := t.TempDir()
	uid, gid := int64(1234), int64(4321)
	files := map[string]File{"sub/a": {Data: []byte("1"), Mode: 0o440, UID: &uid}}
	for i, want := range []bool{true, false} {
		changed, err := Write(dir, files, Options{GID: &gid})
		if err != nil || changed != want {
			t.Fatalf("write %d = %v, %v, want %v", i, changed, err, want)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "sub"))
	if err != nil || !sameOwner(info, nil, &gid) || info.Mode() != fs.ModeDir|fs.ModeSetgid|0o755 {
		t.Errorf("sub: %v %v", info.Mode(), err)
	}
	info, err = os.Stat(filepath.Join(dir, "sub/a"))
	if err != nil || !sameOwner(info, &uid, &gid) || info.Mode() != 0o440 {
		t.Errorf("sub/a: %v %v", info.Mode(), err)
	}
	if changed, err := Write(dir, files, Options{}); err != nil || changed {
		t.Errorf("any group: %v, %v", changed, err)
	}
}

// Random contents one after the other: what is visible is always exactly the last.
func TestWriteModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	names := []string{"a", "b", "c", "d/a", "d/b", "e/f/g"}
	dir := t.TempDir()
	for range 100 {
		files, want := map[string]File{}, map[string]string{}
		for _, name := range names {
			if rng.IntN(2) == 0 {
				data := fmt.Sprint(rng.IntN(3))
				files[name], want[name] = file(data), "644 "+data
			}
		}
		if _, err := Write(dir, files, Options{}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(visible(t, dir), want); diff != "" {
			t.Fatalf("(-got +want):\n%s", diff)
		}
	}
}

func FuzzCheckPath(f *testing.F) {
	for _, seed := range []string{"a", "../a", "a/../..", "/", "..data", "a/b", "./..", "a\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckPath(name) != nil {
			return
		}
		if full := filepath.Join("/base", name); !strings.HasPrefix(full, "/base/") || strings.HasPrefix(full, "/base/..") {
			t.Errorf("%q leads to %q", name, full)
		}
	})
}
