package cli

import (
	"fmt"
	"io"

	"github.com/holdfast-dev/holdfast/internal/doctor"
)

// PrintFindings prints what the doctor found: a table of everything, then what
// to do about each warning and error. Wide tells it about notes too.
func PrintFindings(w io.Writer, findings []doctor.Finding, format Format) error {
	if done, err := format.Data(w, findings); done {
		return err
	}
	grid := NewGrid(w, "level", "check", "found")
	var wrong int
	for _, f := range findings {
		grid.Row(f.Level, f.ID, f.Found)
		if f.Level == doctor.Error {
			wrong++
		}
	}
	if err := grid.Flush(); err != nil {
		return err
	}
	for _, f := range findings {
		if f.Level == doctor.OK || f.Level == doctor.Note && format != Wide {
			continue
		}
		fmt.Fprintf(w, "\n%s: %s: %s\n  why: %s\n", f.Level, f.ID, f.Found, f.Why)
		if f.Remedy != "" {
			fmt.Fprintf(w, "  do:  %s\n", f.Remedy)
		}
	}
	if wrong == 0 {
		_, err := fmt.Fprintln(w, "\nNothing here keeps a node from running.")
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d of these keep a node from running.\n", wrong)
	return err
}
