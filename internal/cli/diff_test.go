package cli_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/manifestdiff"
)

func TestPrintDiff(t *testing.T) {
	d := control.Difference{
		Node: "edge-1", Running: true,
		Changes: []manifestdiff.Change{
			{Action: manifestdiff.Update, Object: "ConfigMap default/conf", Place: "web.yaml:9", Fields: []manifestdiff.Field{
				{Path: "data[site.conf]", Before: "one\ntwo\x1b\nthree\n", After: "one\n2\nthree\n"},
			}},
			{Action: manifestdiff.Add, Object: "Pod default/new", Place: "new.yaml:1", Effect: "the pod starts"},
			{Action: manifestdiff.Unchanged, Object: "Pod default/old", Place: "old.yaml:1"},
			{Action: manifestdiff.Update, Object: "Pod default/web", Place: "web.yaml:1", Effect: "the pod is recreated", Fields: []manifestdiff.Field{
				{Path: "spec.containers[0].image", Before: "a<b", After: "b"}, {Path: "spec.hostNetwork", After: true},
			}},
		},
		Faults:  []control.Fault{{File: "bad.yaml", Line: 2, Message: "not good", Hint: "mend it"}},
		Ignored: []control.IgnoredFile{{File: "x.txt", Reason: "no manifest"}},
	}
	const body = `
UPDATE     ConfigMap default/conf  (web.yaml:9)
           data[site.conf]:
             - two\x1b
             + 2
ADD        Pod default/new  (new.yaml:1): the pod starts
UPDATE     Pod default/web  (web.yaml:1): the pod is recreated
           spec.containers[0].image: "a<b" -> "b"
           spec.hostNetwork: (none) -> true
Not taken:
  bad.yaml:2: not good
      mend it
x.txt: ignored: no manifest
`
	for name, test := range map[string]struct {
		format  cli.Format
		running bool
		want    string
	}{
		"running": {cli.Table, true, body + "1 object unchanged\n"},
		"stopped": {cli.Table, false, body + "1 object unchanged; node edge-1 is not running, so this is against what was in force last\n"},
		"wide":    {cli.Wide, true, strings.Replace(body, "UPDATE     Pod", "UNCHANGED  Pod default/old  (old.yaml:1)\nUPDATE     Pod", 1) + "1 object unchanged\n"},
	} {
		t.Run(name, func(t *testing.T) {
			d.Running = test.running
			var out strings.Builder
			if err := cli.PrintDiff(&out, d, test.format); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff("\n"+out.String(), test.want); diff != "" {
				t.Errorf("got (-), want (+):\n%s", diff)
			}
		})
	}
}
