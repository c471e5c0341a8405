package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var created = time.Date(2027, 1, 2, 15, 4, 5, 0, time.UTC)

// made writes a backup and returns where it is.
func made(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	big := filepath.Join(dir, "store")
	if err := os.WriteFile(big, bytes.Repeat([]byte("store "), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "node.tar.gz")
	err := Write(path, Index{Created: created, Holdfast: "v1", Node: "edge-1", ID: "abc123"}, []File{
		{Name: "store.db", Mode: 0o600, Path: big},
		{Name: "manifests/a/web.yaml", Mode: 0o644, Data: []byte("kind: Pod\n")},
		{Name: "manifests/empty.yaml", Mode: 0o640, Data: []byte{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRoundTrip(t *testing.T) {
	path := made(t)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	dir := t.TempDir()
	index, err := Extract(path, dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range index.Files {
		names = append(names, e.Name+" "+e.Mode.String())
	}
	if diff := cmp.Diff(names, []string{"store.db -rw-------", "manifests/a/web.yaml -rw-r--r--", "manifests/empty.yaml -rw-r-----"}); diff != "" {
		t.Error(diff)
	}
	if index.Version != FormatVersion || index.Node != "edge-1" || index.ID != "abc123" || !index.Created.Equal(created) {
		t.Errorf("got %+v", index)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "manifests", "a", "web.yaml")); err != nil || string(got) != "kind: Pod\n" {
		t.Errorf("got %q, %v", got, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".tmp-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// archived packs an index and files as they are.
func archived(t *testing.T, index any, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	archive := tar.NewWriter(zip)
	head, err := json.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string, data []byte) {
		err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(data))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	add(indexName, head)
	for name, data := range files {
		add(name, []byte(data))
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestExtractRefuses(t *testing.T) {
	whole, err := os.ReadFile(made(t))
	if err != nil {
		t.Fatal(err)
	}
	const sumOfX = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
	index := func(version int, names ...string) Index {
		i := Index{Version: version}
		for _, n := range names {
			i.Files = append(i.Files, Entry{Name: n, Mode: 0o600, Size: 1, SHA256: sumOfX})
		}
		return i
	}
	for name, test := range map[string]struct {
		data []byte
		want error
		says string
	}{
		"no archive":          {[]byte("hello"), ErrDamaged, ""},
		"nothing":             {nil, ErrDamaged, ""},
		"half":                {whole[:len(whole)/2], ErrDamaged, ""},
		"without its end":     {whole[:len(whole)-8], ErrDamaged, ""},
		"another archive":     {archived(t, 1, nil), ErrDamaged, "index"},
		"a newer one":         {archived(t, index(2), nil), ErrNewer, "reads up to 1"},
		"no version":          {archived(t, index(0), nil), ErrDamaged, "no version"},
		"a file too few":      {archived(t, index(1, "a"), nil), ErrDamaged, "a is missing"},
		"a file too many":     {archived(t, index(1), map[string]string{"a": "x"}), ErrDamaged, "does not end"},
		"another file":        {archived(t, index(1, "a"), map[string]string{"b": "x"}), ErrDamaged, `"b" where "a" belongs`},
		"a changed file":      {archived(t, index(1, "a"), map[string]string{"a": "y"}), ErrDamaged, "checksum"},
		"a longer file":       {archived(t, index(1, "a"), map[string]string{"a": "xx"}), ErrDamaged, "checksum"},
		"a path that escapes": {archived(t, index(1, "../a"), map[string]string{"../a": "x"}), ErrDamaged, "../a"},
		"an absolute path":    {archived(t, index(1, "/tmp/a"), map[string]string{"/tmp/a": "x"}), ErrDamaged, "/tmp/a"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "backup")
			if err := os.WriteFile(path, test.data, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Extract(path, t.TempDir())
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.says)
			}
		})
	}
	if _, err := Extract(filepath.Join(t.TempDir(), "a"), t.TempDir()); err == nil {
		t.Error("a missing file was read")
	}
	good := filepath.Join(t.TempDir(), "good")
	if err := os.WriteFile(good, archived(t, index(1, "a"), map[string]string{"a": "x"}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Extract(good, t.TempDir()); err != nil {
		t.Errorf("the good one of these: %v", err)
	}
}

// FuzzExtract holds that no archive makes Extract write outside its folder or
// panic.
func FuzzExtract(f *testing.F) {
	f.Add([]byte("hello"))
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		zip := gzip.NewWriter(&b)
		if _, err := zip.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := zip.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "backup")
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = Extract(path, dir) // nearly always an error
		entries, err := os.ReadDir(outer)
		if err != nil || len(entries) != 1 {
			t.Errorf("outside: %v, %v", entries, err)
		}
	})
}
