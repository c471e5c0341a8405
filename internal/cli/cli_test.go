package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/control"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func report() *control.Report {
	return &control.Report{
		Node: "edge-1", RootDir: "/var/lib/holdfast", PID: 4711, Ready: true, Started: now.Add(-time.Hour),
		Parts:   []control.Part{{Name: "containerd", State: control.Running, Since: now.Add(-time.Hour)}},
		Sources: []control.Source{{Name: "file", State: control.SourceGood, LastGood: now.Add(-5 * time.Second), Place: "/srv/pods", Objects: []control.SourceObject{{Kind: "Pod"}, {Kind: "Secret"}}}},
		Pods: []control.Pod{
			{Namespace: "default", Name: "web-edge-1", Source: "file", Phase: "Running", Ready: 1, Total: 1, Started: now.Add(-time.Minute), IP: "10.85.0.2"},
			{Namespace: "default", Name: "job", Source: "api", Phase: "Pending", Reason: "ErrImagePull", Total: 2, Message: "no such image"},
		},
		Images: []control.Image{
			{File: "app.tar", State: "imported", Names: []string{"reg.example/app:1", "reg.example/app:2"}},
			{File: "new.tar", State: "waiting"},
		},
		Faults: []control.Fault{{
			File: "web.yaml", Line: 7, Object: "Pod default/web", Field: "spec.containers[0].imag",
			Message: "unknown field", Hint: `did you mean "image"?`, Since: now.Add(-5 * time.Minute),
		}},
	}
}

func TestPrintReport(t *testing.T) {
	for name, test := range map[string]struct {
		format cli.Format
		edit   func(*control.Report)
		want   string
	}{
		"table": {want: `
Node edge-1 is ready: process 4711, up 60m.

PART         STATE     SINCE   MESSAGE
containerd   running   60m     -

SOURCE   STATE   LAST GOOD   PODS   OTHERS   WRONG   PLACE
file     ok      5s ago      1      1        0       /srv/pods

NAMESPACE   POD          SOURCE   READY   STATUS         RESTARTS   AGE
default     web-edge-1   file     1/1     Running        0          60s
default     job          api      0/2     ErrImagePull   0          -

IMAGE ARCHIVE   STATE      IMAGES
app.tar         imported   reg.example/app:1 reg.example/app:2
new.tar         waiting    -

Wrong:
  web.yaml:7: Pod default/web: spec.containers[0].imag: unknown field
      did you mean "image"?
      since 5m
`},
		"not running": {edit: func(r *control.Report) { *r = control.Report{Node: "edge-1", RootDir: "/srv/node"} }, want: `
Node edge-1 is not running (root folder /srv/node).

Nothing is wrong.
`},
		"certificates": {format: cli.Wide, edit: func(r *control.Report) {
			r.Pods, r.Faults, r.Parts, r.Sources, r.Images = nil, nil, nil, nil, nil
			r.Certificates = []control.Certificate{
				{Name: "ca", File: "/pki/ca.crt"}, {Name: "admin", File: "/pki/admin.crt", Expires: now.AddDate(1, 0, 0)},
			}
		}, want: `
Node edge-1 is ready: process 4711, up 60m.
Version      
Instance     
Root folder  /var/lib/holdfast
Manifests    
API          
Kubeconfig   

CERTIFICATE   EXPIRES      FILE
ca            never        /pki/ca.crt
admin         2027-05-01   /pki/admin.crt

Nothing is wrong.
`},
		"json": {format: cli.JSON, edit: func(r *control.Report) { r.Pods, r.Faults, r.Parts, r.Sources, r.Images = nil, nil, nil, nil, nil }, want: `
{
  "node": "edge-1",
  "rootDir": "/var/lib/holdfast",
  "id": "",
  "pid": 4711,
  "started": "2026-05-01T11:00:00Z",
  "ready": true,
  "kubeconfig": "",
  "manifestDir": "",
  "parts": null,
  "sources": null,
  "pods": null,
  "images": null,
  "faults": null
}
`},
	} {
		t.Run(name, func(t *testing.T) {
			r := report()
			if test.edit != nil {
				test.edit(r)
			}
			var out strings.Builder
			if err := cli.PrintReport(&out, r, test.format, now); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff("\n"+out.String(), test.want); diff != "" {
				t.Errorf("got (-), want (+):\n%s", diff)
			}
		})
	}
}

func TestFormatRefusesOthers(t *testing.T) {
	var f cli.Format
	if err := f.Set("xml"); err == nil || !strings.Contains(err.Error(), "json, yaml or wide") {
		t.Errorf("got %v", err)
	}
}

func TestControlCharactersAreWrittenOut(t *testing.T) {
	report := &control.Report{
		Node: "edge-1", PID: 1, Images: []control.Image{{File: "a\nb\x1b[2J.tar", State: "wrong"}},
		Faults: []control.Fault{{File: "c\nd \"e\".yaml", Line: 3, Message: "not good"}},
	}
	var out strings.Builder
	if err := cli.PrintReport(&out, report, cli.Table, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`a\nb\x1b[2J.tar`, `c\nd "e".yaml:3: not good`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}
