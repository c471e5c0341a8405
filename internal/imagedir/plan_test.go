package imagedir

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

func TestPlan(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	at := func(size int64, mod time.Time) look { return look{size, mod} }
	old := at(5, ago(time.Hour))
	for name, test := range map[string]struct {
		files   map[string]sight
		records map[string]record
		checked time.Time
		want    []step
		next    time.Time
	}{
		"nothing": {},
		"moved here: at once": {
			files: map[string]sight{"a": {look: old, since: now}},
			want:  []step{{"a", load}},
		},
		"being written": {
			files: map[string]sight{"a": {look: at(5, ago(time.Second)), since: now}},
			next:  now.Add(settle - time.Second),
		},
		"written by a clock ahead": {
			files: map[string]sight{"a": {look: at(5, now.Add(time.Hour)), since: ago(settle)}, "b": {look: at(5, now.Add(time.Hour)), since: now}},
			want:  []step{{"a", load}},
			next:  now.Add(settle),
		},
		"imported": {
			files:   map[string]sight{"a": {look: old}},
			records: map[string]record{"a": {look: old}},
			checked: ago(time.Second),
			next:    now.Add(checkPeriod - time.Second),
		},
		"imported in an earlier run": {
			files:   map[string]sight{"a": {look: old}},
			records: map[string]record{"a": {look: old}},
			want:    []step{{"a", check}},
		},
		"changed since": {
			files:   map[string]sight{"a": {look: at(6, ago(time.Minute)), since: now}},
			records: map[string]record{"a": {look: old}},
			want:    []step{{"a", load}},
		},
		"failed: not before it changes": {
			files: map[string]sight{"a": {look: old, failures: 2}},
		},
		"failed: at its time": {
			files: map[string]sight{"a": {look: old, failures: 1, again: now}, "b": {look: old, failures: 1, again: now.Add(time.Second)}},
			want:  []step{{"a", load}},
			next:  now.Add(time.Second),
		},
		"never": {
			files: map[string]sight{"a": {look: old, bad: true}},
		},
		"gone for long, and just now": {
			files:   map[string]sight{"a": {look: old}},
			records: map[string]record{"z": {look: old, gone: ago(settle)}, "y": {look: old, gone: ago(time.Second)}},
			want:    []step{{"z", forget}, {"a", load}},
			next:    now.Add(settle - time.Second),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, next := plan(now, test.files, test.records, test.checked)
			if diff := cmp.Diff(got, test.want, cmp.AllowUnexported(step{})); diff != "" || !next.Equal(test.next) {
				t.Errorf("next %v, want %v; got -, want +:\n%s", next, test.next, diff)
			}
		})
	}
}

func TestOwner(t *testing.T) {
	records := map[string]record{
		"a.tar":    {Images: []image{{"reg/x:1", "1"}, {"reg/y:1", "1"}}},
		"gone.tar": {Images: []image{{"reg/z:1", "1"}}, gone: time.Unix(1, 0)},
	}
	for name, test := range map[string]struct {
		file, ref, id string
		want          string
	}{
		"another image":       {"b.tar", "reg/y:1", "2", "a.tar"},
		"the same image":      {"b.tar", "reg/y:1", "1", ""},
		"its own new image":   {"a.tar", "reg/y:1", "2", ""},
		"nobody's":            {"b.tar", "reg/w:1", "2", ""},
		"of a file that left": {"b.tar", "reg/z:1", "2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := owner(records, test.file, []ociimage.Named{{Ref: test.ref, IDs: []string{test.id}}})
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
