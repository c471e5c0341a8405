package hostgaps

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func TestRead(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       Table
		wrong      string // part of the error
	}{
		{"two lines", "# a comment\nvm a guest no such  thing # here\n\nvm b nowhere dear\n", Table{{"vm", "a", "guest", "no such thing"}, {"vm", "b", "nowhere", "dear"}}, ""},
		{"without reason", "vm a guest\n", nil, ":1: want host"},
		{"unknown place", "\nvm a moon far\n", nil, ":2: \"moon\""},
		{"twice", "vm a guest x\nvm a nowhere y\n", nil, "twice"},
		{"the guest for itself", "guest a guest x\n", nil, "itself"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gaps")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Read(path)
			if (err != nil) != (test.wrong != "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
				t.Fatalf("error %v, want %q", err, test.wrong)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCommittedTable holds the table and testenv together: a capability has one
// name, and each is a gap somewhere, or nobody would ask for it by name.
func TestCommittedTable(t *testing.T) {
	table, err := Read(filepath.Join("..", "host-gaps.txt"))
	if err != nil {
		t.Fatal(err)
	}
	known := testenv.Capabilities()
	listed := map[string]bool{}
	for _, gap := range table {
		listed[gap.Capability] = true
		if !slices.Contains(known, gap.Capability) {
			t.Errorf("testenv.Need does not know %q, only %v", gap.Capability, known)
		}
	}
	for _, name := range known {
		if !listed[name] {
			t.Errorf("no kind of host lacks %s: a test need not ask for it", name)
		}
	}
}

func TestMissing(t *testing.T) {
	skipped := "    x_test.go:12: needs projectquota: no file system\n"
	if got, ok := Missing(skipped); !ok || got != "projectquota" {
		t.Errorf("Missing = %q, %v", got, ok)
	}
	if got, ok := Missing("    x_test.go:12: not today\n"); ok {
		t.Errorf("Missing = %q for a reason of its own", got)
	}
}
