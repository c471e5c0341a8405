package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMetrics holds that the page of metrics tells of each that a kubelet has.
func TestMetrics(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(root, "internal/kubelet/testdata/metrics.txt"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		name, _, ok := strings.Cut(line, "{")
		if !ok {
			t.Errorf("no name in %q", line)
		}
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/metrics.md does not tell of %s", name)
		}
	}
}
