package conformance

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// A Verdict is what came of one row.
type Verdict struct {
	Row   *Row
	Specs []Spec // those that ran
	// Bad is what is wrong with it: a test that is to pass and did not. Empty:
	// nothing.
	Bad string
	// Passed is whether all of it passed.
	Passed bool
}

// Judge compares what ran with the table's rows.
func Judge(rows []*Row, specs []Spec) []Verdict {
	verdicts := make([]Verdict, 0, len(rows))
	for _, row := range rows {
		v := Verdict{Row: row}
		for _, s := range specs {
			if row.Matches(s.Test) {
				v.Specs = append(v.Specs, s)
			}
		}
		v.Bad, v.Passed = judgeRow(v.Specs)
		if row.Out != "" {
			v.Bad = ""
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

func judgeRow(specs []Spec) (bad string, passed bool) {
	if len(specs) == 0 {
		return "missing: there is no such test", false
	}
	for _, s := range specs {
		if s.State != "passed" {
			return fmt.Sprintf("%s: %s", s.State, cmp.Or(firstLine(s.Message), "no reason given")), false
		}
	}
	return "", true
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// Failed returns the verdicts that make a run fail.
func Failed(verdicts []Verdict) []Verdict {
	return slices.DeleteFunc(slices.Clone(verdicts), func(v Verdict) bool { return v.Bad == "" })
}

type count struct{ rows, passed, failed, out int }

// WriteSummary writes a count a group, then each row that failed, then those
// that are out and passed.
func WriteSummary(w io.Writer, verdicts []Verdict) error {
	groups := map[string]*count{}
	var all count
	for _, v := range verdicts {
		group := groups[v.Row.Group]
		if group == nil {
			group = &count{}
			groups[v.Row.Group] = group
		}
		for _, c := range []*count{group, &all} {
			c.add(v)
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "GROUP\tTESTS\tPASSED\tFAILED\tOUT")
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		c := groups[name]
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\n", name, c.rows, c.passed, c.failed, c.out)
	}
	fmt.Fprintf(table, "all\t%d\t%d\t%d\t%d\n", all.rows, all.passed, all.failed, all.out)
	if err := table.Flush(); err != nil {
		return err
	}
	for _, v := range verdicts {
		switch {
		case v.Bad != "":
			fmt.Fprintf(w, "\nFAILED %s: %s (%s)\n       %s\n", v.Row.Number(), v.Row.Test, v.Row.Where, v.Bad)
		case v.Row.Out != "" && v.Passed:
			fmt.Fprintf(w, "\nPASSED though it is out (%s): %s (%s)\n", v.Row.Out, v.Row.Test, v.Row.Where)
		}
	}
	return nil
}

func (c *count) add(v Verdict) {
	c.rows++
	switch {
	case v.Bad != "":
		c.failed++
	case v.Row.Out != "":
		c.out++
	default:
		c.passed++
	}
}
