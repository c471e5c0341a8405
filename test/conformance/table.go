// Package conformance runs upstream's own tests of a node against a node of
// Holdfast's, and compares what comes of it with a table: which of them pass,
// and why the others cannot. docs/conformance.md says how to use it.
package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A Row is one of upstream's tests, or a family of them that differ in one
// parameter.
type Row struct {
	Group string // "05 ordering: init, sidecar"
	Where string // file and line in upstream's sources
	Test  string // the test's words, without tags; "…" stands for any
	Out   string // why it cannot pass; empty: it passes

	pattern *regexp.Regexp
}

// Matches reports whether a test of these words belongs to the row.
func (r *Row) Matches(test string) bool { return r.pattern.MatchString(test) }

// Number returns the number of the row's group: its first word.
func (r *Row) Number() string {
	number, _, _ := strings.Cut(r.Group, " ")
	return number
}

// ReadTable reads a table: a row a line, of group, place, state ("pass", or
// "out: REASON") and test, with tabs between them; "#" begins a comment.
func ReadTable(from io.Reader) ([]*Row, error) {
	var rows []*Row
	var errs []error
	seen := map[string]bool{}
	in := bufio.NewScanner(from)
	for line := 1; in.Scan(); line++ {
		text := in.Text()
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		row, err := parseRow(text)
		if err == nil && seen[row.Test] {
			err = errors.New("this test stands here twice")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", line, err))
			continue
		}
		seen[row.Test] = true
		rows = append(rows, row)
	}
	return rows, errors.Join(append(errs, in.Err())...)
}

func parseRow(text string) (*Row, error) {
	fields := strings.Split(text, "\t")
	if len(fields) != 4 {
		return nil, fmt.Errorf("want group, place, state and test with tabs between them, not %d fields", len(fields))
	}
	row := &Row{Group: fields[0], Where: fields[1], Test: fields[3]}
	reason, out := strings.CutPrefix(fields[2], "out: ")
	switch {
	case out && reason != "":
		row.Out = reason
	case fields[2] != "pass":
		return nil, fmt.Errorf("state %q: want pass, or out: and the reason", fields[2])
	}
	parts := strings.Split(row.Test, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	pattern, err := regexp.Compile("^" + strings.Join(parts, ".*") + "$")
	if err != nil {
		return nil, err
	}
	row.pattern = pattern
	return row, nil
}

// CountTable returns how many rows of each group pass and how many are out, as a
// table of Markdown.
func CountTable(rows []*Row) string {
	var text strings.Builder
	text.WriteString("| group | tests | pass | out |\n|---|---|---|---|\n")
	line := func(name string, of []*Row) {
		out := 0
		for _, r := range of {
			if r.Out != "" {
				out++
			}
		}
		fmt.Fprintf(&text, "| %s | %d | %d | %d |\n", name, len(of), len(of)-out, out)
	}
	for rest := rows; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(r *Row) bool { return r.Group != rest[0].Group })
		if n < 0 {
			n = len(rest)
		}
		line(rest[0].Group, rest[:n])
		rest = rest[n:]
	}
	line("all", rows)
	return text.String()
}
