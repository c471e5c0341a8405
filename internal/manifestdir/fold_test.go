package manifestdir

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

var parser = manifest.New()

// read makes a reading of files whose text is a list of words: `a=1` is the
// ConfigMap a with the value 1, `!` is a syntax error.
func read(t testing.TB, files map[string]string) reading {
	t.Helper()
	r := reading{files: map[string]file{}}
	for name, words := range files {
		var docs []string
		for word := range strings.FieldsSeq(words) {
			if word == "!" {
				docs = append(docs, "\tbroken: [")
				continue
			}
			key, val, _ := strings.Cut(word, "=")
			docs = append(docs, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {v: %q}\n", key, val))
		}
		p := parser.Parse(name, []byte(strings.Join(docs, "\n---\n")+"\n#\n"))
		r.files[name] = file{documents: p.Documents, faults: p.Faults}
	}
	return r
}

// show writes a state as `a=1@file` words, faults as `!file`, kept ones with *.
func show(s state) string {
	var words []string
	for _, d := range s.set.Documents {
		_, val, _ := strings.Cut(string(d.Written), `"data":{"v":"`)
		val, _, _ = strings.Cut(val, `"`)
		word := d.Key.Name + "=" + val + "@" + d.File
		if slices.Contains(s.set.Kept, d.Key) {
			word += "*"
		}
		words = append(words, word)
	}
	slices.Sort(words)
	for _, f := range s.set.Faults {
		word := "!" + f.File
		if f.Reason == manifest.ReasonDuplicate {
			word += ":duplicate"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestFold(t *testing.T) {
	type step struct {
		after int64             // milliseconds
		files map[string]string // nil: the folder cannot be read
		want  string
	}
	type m = map[string]string
	tests := []struct {
		name  string
		steps []step
	}{
		{"add, change, remove", []step{
			{0, m{"a": "x=1"}, "x=1@a"},
			{1, m{"a": "x=2"}, "x=2@a"},
			{1, m{}, "x=2@a"},
			{1999, m{}, "x=2@a"},
			{1, m{}, ""},
		}},
		{"back within the settle time", []step{
			{0, m{"a": "x=1"}, "x=1@a"},
			{1, m{}, "x=1@a"},
			{1500, m{"a": "x=1"}, "x=1@a"},
			{1500, m{}, "x=1@a"},
			{1500, m{}, "x=1@a"},
			{500, m{}, ""},
		}},
		{"a broken file keeps what it said", []step{
			{0, m{"a": "x=1 w=1", "b": "z=1"}, "w=1@a x=1@a z=1@b"},
			{9000, m{"a": "!", "b": "z=1"}, "w=1@a* x=1@a* z=1@b !a"},
			{9000, m{"a": "!", "b": "z=2"}, "w=1@a* x=1@a* z=2@b !a"},
			{9000, m{"a": "x=2", "b": "z=2"}, "w=1@a x=2@a z=2@b"},
			{9000, m{"a": "x=2", "b": "z=2"}, "x=2@a z=2@b"},
		}},
		{"a fault costs only itself", []step{
			{0, m{"a": "x=1 w=1"}, "w=1@a x=1@a"},
			{1, m{"a": "x=2 !"}, "w=1@a* x=2@a !a"},
		}},
		{"a broken file that is deleted", []step{
			{0, m{"a": "x=1"}, "x=1@a"},
			{1, m{"a": "!"}, "x=1@a* !a"},
			{1, m{}, "x=1@a"},
			{2000, m{}, ""},
		}},
		{"all are broken, and a new one comes", []step{
			{0, m{"a": "x=1", "b": "z=1"}, "x=1@a z=1@b"},
			{1, m{"a": "!", "b": "!"}, "x=1@a* z=1@b* !a !b"},
			{9000, m{"a": "!", "b": "!", "c": "w=1"}, "w=1@c x=1@a* z=1@b* !a !b"},
			{9000, m{"a": "!", "b": "z=1", "c": "w=1"}, "w=1@c x=1@a* z=1@b !a"},
		}},
		{"broken from the start", []step{
			{0, m{"a": "!", "b": "w=1"}, "w=1@b !a"},
		}},
		{"moved to another file", []step{
			{0, m{"a": "x=1"}, "x=1@a"},
			{1, m{"b": "x=1"}, "x=1@b"},
			{9000, m{"b": "x=1"}, "x=1@b"},
		}},
		{"moved, seen in two steps", []step{
			{0, m{"a": "x=1"}, "x=1@a"},
			{1, m{}, "x=1@a"},
			{1, m{"b": "x=2"}, "x=2@b"},
		}},
		{"a copy never takes over", []step{
			{0, m{"b": "x=1"}, "x=1@b"},
			{1, m{"a": "x=9", "b": "x=1"}, "x=1@b !a:duplicate"},
			{1, m{"a": "x=9", "b": "x=2"}, "x=2@b !a:duplicate"},
			{9000, m{"a": "x=9", "b": "!"}, "x=2@b* !a:duplicate !b"},
			{9000, m{"a": "x=9"}, "x=9@a"},
		}},
		{"of two at the start the first", []step{
			{0, m{"a": "x=1", "b": "x=2"}, "x=1@a !b:duplicate"},
		}},
		{"moved, and copied at once: the same text goes on", []step{
			{0, m{"m": "x=1"}, "x=1@m"},
			{1, m{"a": "x=2", "z": "x=1"}, "x=1@z !a:duplicate"},
		}},
		{"twice in one file", []step{
			{0, m{"a": "x=1 x=2"}, "x=1@a !a:duplicate"},
			{1, m{"a": "x=0 x=1"}, "x=1@a !a:duplicate"},
		}},
		{"a duplicate is not a broken file", []step{
			{0, m{"a": "x=1", "b": "x=2 w=1"}, "w=1@b x=1@a !b:duplicate"},
			{1, m{"a": "x=1", "b": "x=2"}, "w=1@b x=1@a !b:duplicate"},
			{2000, m{"a": "x=1", "b": "x=2"}, "x=1@a !b:duplicate"},
		}},
		{"a new name in a file: the old goes and the new comes together", []step{
			{0, m{"a": "x=1 z=1", "b": "v=1"}, "v=1@b x=1@a z=1@a"},
			{1, m{"a": "w=1 z=2", "b": "v=1 u=1"}, "u=1@b v=1@b x=1@a z=2@a"},
			{1999, m{"a": "w=1 z=2", "b": "v=1 u=1"}, "u=1@b v=1@b x=1@a z=2@a"},
			{1, m{"a": "w=1 z=2", "b": "v=1 u=1"}, "u=1@b v=1@b w=1@a z=2@a"},
		}},
		{"a new name in a file, and the old name in another", []step{
			{0, m{"a": "x=1"}, "x=1@a"},
			{1, m{"a": "w=1"}, "x=1@a"},
			{1, m{"a": "w=1", "b": "x=1"}, "w=1@a x=1@b"},
		}},
		{"the folder is away", []step{
			{0, m{"a": "x=1", "b": "!"}, "x=1@a !b"},
			{1, nil, "x=1@a* !b !dir"},
			{9000, nil, "x=1@a* !b !dir"},
			{1, m{}, "x=1@a"},
			{1999, nil, "x=1@a* !dir"},
			{9000, m{}, "x=1@a"},
			{2000, m{}, ""},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s state
			now := time.Unix(1000, 0)
			for i, step := range tt.steps {
				now = now.Add(time.Duration(step.after) * time.Millisecond)
				r := read(t, step.files)
				if step.files == nil {
					r = reading{failed: &manifest.Fault{File: "dir", Reason: manifest.ReasonUnreadable}}
				}
				s, _ = fold(s, r, now, 2*time.Second)
				if got := show(s); got != step.want {
					t.Errorf("step %d:\ngot  %s\nwant %s", i, got, step.want)
				}
			}
		})
	}
}

func TestFoldKnown(t *testing.T) {
	away := reading{failed: &manifest.Fault{File: "dir"}}
	s, _ := fold(state{}, away, time.Unix(0, 0), time.Second)
	if s.set.Known {
		t.Error("a folder that never answered is known")
	}
	s, _ = fold(s, read(t, nil), time.Unix(0, 0), time.Second)
	if !s.set.Known || len(s.set.Documents) != 0 {
		t.Errorf("an empty folder: known %v with %d documents, want true and 0", s.set.Known, len(s.set.Documents))
	}
	if s, _ = fold(s, away, time.Unix(0, 0), time.Second); !s.set.Known {
		t.Error("a folder that answered once is no longer known")
	}
}

func TestFoldSinceAndWait(t *testing.T) {
	start := time.Unix(1000, 0)
	s, _ := fold(state{}, read(t, map[string]string{"a": "x=1 !"}), start, time.Second)
	s, wait := fold(s, read(t, map[string]string{"a": "x=2 w=1 !"}), start.Add(time.Minute), time.Second)
	if got := s.set.Faults[0].Since; !got.Equal(start) {
		t.Errorf("since: got %v, want %v", got, start)
	}
	if wait != 0 {
		t.Errorf("nothing is missing: got a wait of %v, want 0", wait)
	}
	s, _ = fold(s, read(t, nil), start.Add(time.Minute), time.Second)
	_, wait = fold(s, read(t, nil), start.Add(time.Minute+300*time.Millisecond), time.Second)
	if want := 700 * time.Millisecond; wait != want {
		t.Errorf("wait: got %v, want %v", wait, want)
	}
}

// The names of both files stand in the fault.
func TestFoldDuplicateText(t *testing.T) {
	s, _ := fold(state{}, read(t, map[string]string{"a.yaml": "x=1", "b.yaml": "w=1 x=2"}), time.Unix(0, 0), time.Second)
	want := "b.yaml:9: ConfigMap default/x: metadata.name: duplicate ConfigMap name: a.yaml:1 has it too, and that one is in force; rename or delete one of the two"
	if got := s.set.Faults[0].String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestFoldModel edits a folder at random and checks the promises: what was
// continuously written well in one file is never missing, what is in force was
// written by somebody, and in the end what is in force is what is written.
func TestFoldModel(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		files := map[string]string{}
		var s state
		now := time.Unix(1000, 0)
		for range 40 {
			name := string(rune('a' + rnd.IntN(3)))
			switch rnd.IntN(5) {
			case 0:
				delete(files, name)
			case 1:
				files[name] = "!"
			default:
				files[name] = fmt.Sprintf("%c%s=%d", 'x'+rune(rnd.IntN(2)), name, rnd.IntN(3))
			}
			now = now.Add(time.Duration(rnd.IntN(3000)) * time.Millisecond)
			r := read(t, files)
			if rnd.IntN(6) == 0 {
				r = reading{failed: &manifest.Fault{File: "dir"}}
			}
			before := s
			s, _ = fold(s, r, now, 2*time.Second)
			for key, e := range before.inForce {
				_, still := s.inForce[key]
				gone := r.failed == nil && files[e.document.File] != "!" && !strings.HasPrefix(files[e.document.File], key.Name+"=")
				if !still && !gone {
					t.Fatalf("seed %d: %s left though %q says %q", seed, key, e.document.File, files[e.document.File])
				}
			}
		}
		maps.DeleteFunc(files, func(_, text string) bool { return text == "!" })
		s, _ = fold(s, read(t, files), now, 2*time.Second)
		s, _ = fold(s, read(t, files), now.Add(2*time.Second), 2*time.Second)
		var want []string
		for name, text := range files {
			want = append(want, text+"@"+name)
		}
		slices.Sort(want)
		if diff := cmp.Diff(show(s), strings.Join(want, " ")); diff != "" {
			t.Fatalf("seed %d: at the end (-got +want):\n%s", seed, diff)
		}
	}
}
