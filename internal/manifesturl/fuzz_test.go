package manifesturl

import (
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// FuzzBody gives bodies to a URL that has two pods in force. What it decides
// must hold together, and pods go only for what was read.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{
		twoPods, emptyPods, pod("a", ""), podJSON("a", "2"), "# only comments\n", "<html>", "{", "---\n---\n", "kind: List\napiVersion: v1\n",
		`{"apiVersion":"v1","kind":"List","items":[` + podJSON("a", "1") + `,` + podJSON("a", "2") + `]}`, "\xff\xfe", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bb",
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		cfg := Config{Source: Source{URL: "http://localhost/x"}, Parser: parser, Log: slog.New(slog.DiscardHandler)}
		withChecks(&cfg)
		u, err := New(cfg)
		must(t, err)
		first, err := u.parse(response{body: []byte(twoPods)})
		must(t, err)
		before := fold(state{}, first, time.Unix(1, 0))
		a, err := u.parse(response{body: body})
		if err != nil {
			return // nothing was said
		}
		after := fold(before, a, time.Unix(2, 0))
		named := map[manifest.Key]bool{}
		for _, d := range a.documents {
			named[d.Key] = true
			if d.Key.Kind != "Pod" || d.File != "http://localhost/x" {
				t.Errorf("took %s of %s", d.Key, d.File)
			}
		}
		for key := range before.inForce {
			if e, there := after.inForce[key]; !there && a.doubtful || there && !named[key] != e.kept {
				t.Errorf("%s: in force %v, kept %v, named %v, doubtful %v", key, there, e.kept, named[key], a.doubtful)
			}
		}
		if len(after.inForce) == 0 && len(a.faults) == len(a.documents) && len(a.faults) != 0 {
			t.Error("faults alone took every pod away")
		}
		for key := range named {
			if _, there := after.inForce[key]; !there {
				t.Errorf("%s was read and is not in force", key)
			}
		}
		if !after.equalTo(after.unchanged(time.Unix(3, 0))) {
			t.Error("the same again is another set")
		}
	})
}

func (s state) equalTo(o state) bool { return s.set.equal(o.set) }
