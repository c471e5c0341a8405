package manifest

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

const corpusFile = "testdata/corpus.txtar"

// TestCorpus gives the parser manifests with one mistake each. Every one must
// be refused, in lines that say where it is and what to do.
func TestCorpus(t *testing.T) {
	corpus, err := txtar.ParseFile(corpusFile)
	if err != nil {
		t.Fatal(err)
	}
	p := New()
	cases := 0
	for i := 0; i+1 < len(corpus.Files); i += 2 {
		in, want := corpus.Files[i], &corpus.Files[i+1]
		cases++
		t.Run(strings.TrimSuffix(in.Name, ".yaml"), func(t *testing.T) {
			var got bytes.Buffer
			for _, f := range p.Parse(in.Name, in.Data).Faults {
				if f.Line == 0 {
					t.Errorf("no line: %s", f)
				}
				if f.Suggestion == "" && f.Hint == "" && f.Reason != ReasonInvalid {
					t.Errorf("nothing to do: %s", f)
				}
				got.WriteString(f.String() + "\n")
			}
			if got.Len() == 0 {
				t.Error("no fault")
			}
			if *update {
				want.Data = got.Bytes()
				return
			}
			if diff := cmp.Diff(got.String(), string(want.Data)); diff != "" {
				t.Errorf("faults (-got +want):\n%s", diff)
			}
		})
	}
	if cases < 50 {
		t.Errorf("got %d cases, want at least 50", cases)
	}
	if *update {
		if err := os.WriteFile(corpusFile, txtar.Format(corpus), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
