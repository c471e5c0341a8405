package cli

import (
	"fmt"
	"io"

	"github.com/holdfast-dev/holdfast/internal/control"
)

// PrintCheck writes what is wrong with manifests, one line a fault, as compilers
// do; which files are ignored; and a line that sums it up.
func PrintCheck(w io.Writer, c control.Check, format Format) error {
	if done, err := format.Data(w, c); done {
		return err
	}
	for _, f := range c.Faults {
		line := FaultLine(f)
		if f.Hint != "" {
			line += "; " + f.Hint
		}
		fmt.Fprintln(w, line)
	}
	for _, i := range c.Ignored {
		fmt.Fprintf(w, "%s: ignored: %s\n", visible(i.File), i.Reason)
	}
	sum := fmt.Sprintf("%s in %s", count(c.Documents, "document"), count(c.Files, "file"))
	if c.Documents == 1 {
		sum += " is good"
	} else {
		sum += " are good"
	}
	if len(c.Faults) > 0 {
		sum += ", " + count(len(c.Faults), "fault")
	}
	_, err := fmt.Fprintln(w, sum)
	return err
}

// count returns "1 file", "2 files".
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
