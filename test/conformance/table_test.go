package conformance

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestReadTable(t *testing.T) {
	rows, err := ReadTable(strings.NewReader("# comment\n\n05 order\ta.go:1\tpass\tA pod should *not* start (b)\n06 probes\tb.go:2\tout: no kernel\tProbe … works …\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0].Number() != "05" || rows[0].Out != "" || rows[1].Out != "no kernel" {
		t.Fatalf("got %+v", rows)
	}
	for _, test := range []struct {
		row   int
		words string
		want  bool
	}{
		{0, "A pod should *not* start (b)", true},
		{0, "A pod should be not start (b)", false},
		{0, "A pod should *not* start (b) twice", false},
		{1, "Probe one works well", true},
		{1, "Probe one fails", false},
	} {
		if got := rows[test.row].Matches(test.words); got != test.want {
			t.Errorf("%q matches %q: %v, want %v", rows[test.row].Test, test.words, got, test.want)
		}
	}
}

func TestReadTableRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"05 a\tb\tpass":                    "3 fields",
		"05 a\tb\tmaybe\tc":                "state",
		"05 a\tb\tout: \tc":                "state",
		"5 a\tb\tpass\tc\n5 a\tb\tpass\tc": "line 2: this test stands here twice",
	} {
		if _, err := ReadTable(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", text, err, want)
		}
	}
}

// TestTable checks that the committed table is whole, and that the page for
// users has its counts.
func TestTable(t *testing.T) {
	file, err := os.Open("tests.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := ReadTable(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 499 {
		t.Errorf("the table has %d rows, want 499: all of upstream's tests of one node", len(rows))
	}
	if !slices.IsSortedFunc(rows, func(a, b *Row) int { return strings.Compare(a.Group, b.Group) }) {
		t.Error("the table is not in the order of its groups")
	}
	page, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := CountTable(rows); !strings.Contains(string(page), want) {
		t.Errorf("docs/conformance.md has other counts than the table; want\n%s", want)
	}
}
