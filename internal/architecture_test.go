package internal

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestArchitectureNamesEveryPackage holds that ARCHITECTURE.md's table of places
// has every package of ours, with its kind, and no other.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "## Where things are\n")
	if !found {
		t.Fatal("ARCHITECTURE.md has no section \"Where things are\"")
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	shown := map[string]string{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && strings.Contains(cells[1], "`") {
			addRow(t, shown, cells[1], cells[2])
		}
	}
	for pkg, kind := range kinds {
		if got := shown[pkg]; got != kind {
			t.Errorf("%s is %q in ARCHITECTURE.md, and %q in kinds", pkg, got, kind)
		}
	}
	for pkg := range shown {
		ours := strings.HasPrefix(pkg, "internal/") || strings.HasPrefix(pkg, "cmd/")
		if _, ok := kinds[pkg]; ours && !ok {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", pkg)
		}
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// addRow notes the packages of one row. A name that is no path stands beside
// the first of its row, or below it where only that exists; the last kind
// stands for all packages that are left.
func addRow(t *testing.T, shown map[string]string, names, kindCell string) {
	t.Helper()
	kindsOfRow := strings.Split(strings.TrimSpace(kindCell), ", ")
	var first string
	for i, match := range quoted.FindAllStringSubmatch(names, -1) {
		name := strings.TrimSuffix(match[1], "/")
		if first == "" {
			first = name
		} else if !strings.Contains(name, "/") {
			name = path.Join(path.Dir(first), name)
		}
		if _, twice := shown[name]; twice {
			t.Errorf("ARCHITECTURE.md names %s twice", name)
		}
		shown[name] = kindsOfRow[min(i, len(kindsOfRow)-1)]
	}
}

// TestKindsAreKnown holds that the table of kinds uses no word of its own.
func TestKindsAreKnown(t *testing.T) {
	for pkg, kind := range kinds {
		if _, ok := may[kind]; !ok {
			t.Errorf("%s is a %q, which is no kind", pkg, kind)
		}
	}
	for kind, others := range may {
		for _, other := range others {
			if _, ok := may[other]; !ok {
				t.Errorf("%s may import %q, which is no kind", kind, other)
			}
		}
	}
	if slices.Contains(may["stage"], "stage") || slices.Contains(may["adapter"], "adapter") {
		t.Error("a stage may import a stage, or an adapter an adapter")
	}
}
