package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/control"
)

// PrintSources writes where the node's pods come from: each source, what it
// delivers, what is wrong with which document, and which files are ignored.
func PrintSources(w io.Writer, sources []control.Source, format Format, now time.Time) error {
	if done, err := format.Data(w, sources); done {
		return err
	}
	if err := printSources(w, sources, now); err != nil {
		return err
	}
	if err := printSourceObjects(w, sources, format); err != nil {
		return err
	}
	wrong := false
	for _, s := range sources {
		if s.Message != "" {
			fmt.Fprintf(w, "\nSource %s is %s: %s\n", s.Name, s.State, visible(s.Message))
			if !s.Since.IsZero() {
				fmt.Fprintf(w, "  since %s%s\n", Age(s.Since, now), stays(s))
			}
		}
		wrong = wrong || s.Wrong()
		if len(s.Faults) > 0 {
			fmt.Fprintf(w, "\nWrong in source %s:\n", s.Name)
		}
		for _, f := range s.Faults {
			printFault(w, f, now)
		}
		if len(s.Ignored) > 0 {
			fmt.Fprintf(w, "\nIgnored in source %s:\n", s.Name)
		}
		for _, i := range s.Ignored {
			fmt.Fprintf(w, "  %s: %s\n", visible(i.File), i.Reason)
		}
	}
	if !wrong {
		fmt.Fprintln(w, "\nNothing is wrong.")
	}
	return nil
}

// printSources writes one line a source.
func printSources(w io.Writer, sources []control.Source, now time.Time) error {
	grid := NewGrid(w, "source", "state", "last good", "pods", "others", "wrong", "place")
	for _, s := range sources {
		pods := 0
		for _, o := range s.Objects {
			if o.Kind == "Pod" {
				pods++
			}
		}
		lastGood := Age(s.LastGood, now)
		if lastGood != "" {
			lastGood += " ago"
		}
		grid.Row(s.Name, s.State, lastGood, pods, len(s.Objects)-pods, len(s.Faults), s.Place)
	}
	return grid.Flush()
}

// printSourceObjects writes one line an object that is in force.
func printSourceObjects(w io.Writer, sources []control.Source, format Format) error {
	heads := []string{"source", "object", "from", "note"}
	if format == Wide {
		heads = append(heads, "pod")
	}
	var rows [][]any
	for _, s := range sources {
		for _, o := range s.Objects {
			name := o.Name
			if o.Namespace != "" {
				name = o.Namespace + "/" + name
			}
			row := []any{s.Name, o.Kind + " " + name, o.Place, note(s, o)}
			if format == Wide {
				row = append(row, o.Pod)
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	grid := NewGrid(w, heads...)
	for _, row := range rows {
		grid.Row(row...)
	}
	return grid.Flush()
}

// stays says that a source takes nothing away, if it ever gave something.
func stays(s control.Source) string {
	if s.State == control.SourceSilent {
		return ""
	}
	return "; what it last said stays in force"
}

// note says what is special about an object that a source delivers.
func note(s control.Source, o control.SourceObject) string {
	switch {
	case o.LeftOut:
		return "left out: see what is wrong"
	case o.Kept && s.Message != "":
		return "kept: the source does not give it now"
	case o.Kept:
		return "kept: its document is not good now"
	default:
		return ""
	}
}

// printFault writes a fault with what to do, what kind it is and its age.
func printFault(w io.Writer, f control.Fault, now time.Time) {
	fmt.Fprintf(w, "  %s\n", FaultLine(f))
	if f.Hint != "" {
		fmt.Fprintf(w, "      %s\n", f.Hint)
	}
	var notes []string
	if f.Reason != "" {
		notes = append(notes, f.Reason)
	}
	if !f.Since.IsZero() {
		notes = append(notes, "since "+Age(f.Since, now))
	}
	if len(notes) > 0 {
		fmt.Fprintf(w, "      %s\n", strings.Join(notes, ", "))
	}
}
