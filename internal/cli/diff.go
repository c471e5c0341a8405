package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/manifestdiff"
)

// PrintDiff writes what manifests would change: each object with its fields,
// then what would not be taken. Wide lists unchanged objects too.
func PrintDiff(w io.Writer, d control.Difference, format Format) error {
	if done, err := format.Data(w, d); done {
		return err
	}
	unchanged := 0
	for _, c := range d.Changes {
		if c.Action == manifestdiff.Unchanged {
			unchanged++
			if format != Wide {
				continue
			}
		}
		line := fmt.Sprintf("%-9s  %s  (%s)", strings.ToUpper(string(c.Action)), c.Object, visible(c.Place))
		if c.Effect != "" {
			line += ": " + c.Effect
		}
		fmt.Fprintln(w, line)
		for _, f := range c.Fields {
			printField(w, f)
		}
	}
	if len(d.Faults) > 0 {
		fmt.Fprintln(w, "Not taken:")
	}
	for _, f := range d.Faults {
		fmt.Fprintf(w, "  %s\n", FaultLine(f))
		if f.Hint != "" {
			fmt.Fprintf(w, "      %s\n", f.Hint)
		}
	}
	for _, i := range d.Ignored {
		fmt.Fprintf(w, "%s: ignored: %s\n", visible(i.File), i.Reason)
	}
	line := count(unchanged, "object") + " unchanged"
	if !d.Running {
		line += fmt.Sprintf("; node %s is not running, so this is against what was in force last", d.Node)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

const indent = "             "

// printField writes how a field changes: in lines, if a value has several.
func printField(w io.Writer, f manifestdiff.Field) {
	before, after := lines(f.Before), lines(f.After)
	if len(before) <= 1 && len(after) <= 1 {
		fmt.Fprintf(w, "%s%s: %s -> %s\n", indent[2:], visible(f.Path), value(f.Before), value(f.After))
		return
	}
	fmt.Fprintf(w, "%s%s:\n", indent[2:], visible(f.Path))
	same := 0 // lines at the beginning
	for same < min(len(before), len(after)) && before[same] == after[same] {
		same++
	}
	before, after = before[same:], after[same:]
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	for _, line := range before {
		fmt.Fprintf(w, "%s- %s\n", indent, visible(line))
	}
	for _, line := range after {
		fmt.Fprintf(w, "%s+ %s\n", indent, visible(line))
	}
}

// lines returns the lines of a value that is text. Another value has one, and
// one that is not there none.
func lines(v any) []string {
	if v == nil {
		return nil
	}
	text, ok := v.(string)
	if !ok {
		return []string{value(v)}
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// value returns a value as JSON; "(none)" for one that is not there.
func value(v any) string {
	if v == nil {
		return "(none)"
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
