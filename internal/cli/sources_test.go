package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/control"
)

func TestPrintSources(t *testing.T) {
	broken := []control.Source{
		{
			Name: "file", Place: "/srv/pods", State: control.SourceFailing, LastGood: now.Add(-time.Minute), Message: "cannot be read: permission denied", Since: now.Add(-50 * time.Second),
			Objects: []control.SourceObject{
				{Kind: "Pod", Namespace: "default", Name: "web", Pod: "web-edge-1", Place: "web.yaml:1", Kept: true},
				{Kind: "StorageClass", Name: "fast", Place: "a/class.yaml:4"},
			},
			Faults: []control.Fault{{
				File: "web.yaml", Line: 7, Reason: "UnknownField", Object: "Pod default/web", Field: "spec.argz", Message: "unknown field", Hint: `did you mean "args"?`, Since: now.Add(-5 * time.Minute),
			}},
			Ignored: []control.IgnoredFile{{File: "web.yaml.bak\x1b", Reason: "no manifest"}},
		},
		{Name: "api", Place: "https://127.0.0.1:6443", State: control.SourceGood, LastGood: now, Objects: []control.SourceObject{{Kind: "Pod", Namespace: "lab", Name: "x"}}},
	}
	for name, test := range map[string]struct {
		sources []control.Source
		format  cli.Format
		want    string
	}{
		"broken": {broken, cli.Wide, `
SOURCE   STATE     LAST GOOD   PODS   OTHERS   WRONG   PLACE
file     failing   60s ago     1      1        1       /srv/pods
api      ok        0s ago      1      0        0       https://127.0.0.1:6443

SOURCE   OBJECT              FROM             NOTE                                    POD
file     Pod default/web     web.yaml:1       kept: the source does not give it now   web-edge-1
file     StorageClass fast   a/class.yaml:4   -                                       -
api      Pod lab/x           -                -                                       -

Source file is failing: cannot be read: permission denied
  since 50s; what it last said stays in force

Wrong in source file:
  web.yaml:7: Pod default/web: spec.argz: unknown field
      did you mean "args"?
      UnknownField, since 5m

Ignored in source file:
  web.yaml.bak\x1b: no manifest
`},
		"good, and not all of it": {[]control.Source{
			{
				Name: "file", Place: "/srv/pods", State: control.SourceGood, Objects: []control.SourceObject{
					{Kind: "Pod", Namespace: "default", Name: "db", Pod: "db-edge-1", Place: "db.yaml:1", LeftOut: true},
					{Kind: "Pod", Namespace: "default", Name: "web", Pod: "web-edge-1", Place: "web.yaml:1", Kept: true},
				},
				Faults: []control.Fault{{File: "web.yaml", Line: 7, Message: "unknown field"}},
			},
			{Name: "http", Place: "https://h/pods", State: control.SourceSilent, Message: "has never answered", Since: now.Add(-time.Minute)},
		}, cli.Table, `
SOURCE   STATE    LAST GOOD   PODS   OTHERS   WRONG   PLACE
file     ok       -           2      0        1       /srv/pods
http     silent   -           0      0        0       https://h/pods

SOURCE   OBJECT            FROM         NOTE
file     Pod default/db    db.yaml:1    left out: see what is wrong
file     Pod default/web   web.yaml:1   kept: its document is not good now

Wrong in source file:
  web.yaml:7: unknown field

Source http is silent: has never answered
  since 60s
`},
		"empty": {[]control.Source{{Name: "file", Place: "/srv/pods", State: control.SourceGood}}, cli.Table, `
SOURCE   STATE   LAST GOOD   PODS   OTHERS   WRONG   PLACE
file     ok      -           0      0        0       /srv/pods

Nothing is wrong.
`},
		"yaml": {[]control.Source{{Name: "file", Place: "/srv/pods", State: control.SourceSilent, Objects: []control.SourceObject{}, Faults: []control.Fault{}}}, cli.YAML, `
- faults: []
  name: file
  objects: []
  place: /srv/pods
  state: silent
`},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := cli.PrintSources(&out, test.sources, test.format, now); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff("\n"+out.String(), test.want); diff != "" {
				t.Errorf("got (-), want (+):\n%s", diff)
			}
		})
	}
}
