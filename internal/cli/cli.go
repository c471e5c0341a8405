// Package cli holds what the commands share: output formats and tables.
package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// A Format is the value of a command's -o flag. It is a pflag.Value.
type Format string

// The output formats.
const (
	Table Format = ""
	Wide  Format = "wide"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// String returns the format as written on a command line.
func (f *Format) String() string { return string(*f) }

// Set takes a format from a command line.
func (f *Format) Set(s string) error {
	switch Format(s) {
	case Table, Wide, JSON, YAML:
		*f = Format(s)
		return nil
	default:
		return fmt.Errorf("%q is no output format: json, yaml or wide", s)
	}
}

// Type names the flag's value in help texts.
func (*Format) Type() string { return "json|yaml|wide" }

// Data writes v as JSON or YAML and reports whether f is one of them.
func (f *Format) Data(w io.Writer, v any) (done bool, err error) {
	switch *f {
	case JSON:
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return true, out.Encode(v)
	case YAML:
		text, err := yaml.Marshal(v)
		if err == nil {
			_, err = w.Write(text)
		}
		return true, err
	case Table, Wide:
		return false, nil
	}
	return false, nil
}

// A Grid is a table in the manner of kubectl: upper-case heads, three spaces.
type Grid struct {
	tab *tabwriter.Writer
}

// NewGrid starts a table with these heads.
func NewGrid(w io.Writer, heads ...string) *Grid {
	g := &Grid{tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)}
	fmt.Fprintln(g.tab, strings.ToUpper(strings.Join(heads, "\t")))
	return g
}

// Row adds a row. A cell of nothing is shown as a dash.
func (g *Grid) Row(cells ...any) {
	text := make([]string, len(cells))
	for i, cell := range cells {
		text[i] = visible(fmt.Sprint(cell))
		if text[i] == "" {
			text[i] = "-"
		}
	}
	fmt.Fprintln(g.tab, strings.Join(text, "\t"))
}

// visible returns s with its control characters written out: the name of a file
// may hold a line break, or a sequence that a terminal obeys.
func visible(s string) string {
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// Flush writes the table.
func (g *Grid) Flush() error { return g.tab.Flush() }

// Age returns how long ago t was, as kubectl writes it, or "" if t is zero.
func Age(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(t))
}
