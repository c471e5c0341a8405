package page

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	const begin, end = "<!-- begin part: written by make bench -->", "<!-- end part -->"
	file := filepath.Join(t.TempDir(), "page.md")
	replace := func(page string) (string, error) {
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		err := Replace(file, "part", "new\n")
		data, _ := os.ReadFile(file)
		return string(data), err
	}
	got, err := replace("# Title\n" + begin + "\nold\n" + end + "\nend\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := "# Title\n" + begin + "\n\nnew\n\n" + end + "\nend\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, page := range map[string]string{"no markers": "x", "no end": begin, "wrong order": end + begin} {
		if got, err := replace(page); err == nil || got != page {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
