package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/doctor"
)

func TestPrintFindings(t *testing.T) {
	findings := []doctor.Finding{
		{ID: "root", Level: doctor.OK, Found: "runs as root"},
		{ID: "swap", Level: doctor.Note, Found: "5 MiB", Why: "limits bind later"},
		{ID: "port-api", Level: doctor.Error, Found: "6443 is taken", Why: "the node listens there", Remedy: "--api-port 0"},
	}
	table := `LEVEL   CHECK      FOUND
ok      root       runs as root
note    swap       5 MiB
error   port-api   6443 is taken
`
	note := "\nnote: swap: 5 MiB\n  why: limits bind later\n"
	fault := "\nerror: port-api: 6443 is taken\n  why: the node listens there\n  do:  --api-port 0\n"
	for name, c := range map[string]struct {
		findings []doctor.Finding
		format   Format
		want     string
	}{
		"table":    {findings, Table, table + fault + "\n1 of these keep a node from running.\n"},
		"wide":     {findings, Wide, table + note + fault + "\n1 of these keep a node from running.\n"},
		"all well": {findings[:1], Table, "LEVEL   CHECK   FOUND\nok      root    runs as root\n\nNothing here keeps a node from running.\n"},
		"json":     {findings[:1], JSON, "[\n  {\n    \"id\": \"root\",\n    \"level\": \"ok\",\n    \"found\": \"runs as root\"\n  }\n]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := PrintFindings(&out, c.findings, c.format); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
