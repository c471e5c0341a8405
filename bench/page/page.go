// Package page writes what a benchmark measured into a page of the
// documentation.
package page

import (
	"fmt"
	"os"
	"strings"
)

// Replace puts text between the lines of a part of a file, which are
//
//	<!-- begin PART: written by make bench -->
//	<!-- end PART -->
//
// and leaves the rest as it is. A file without those lines is an error.
func Replace(file, part, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- begin %s: written by make bench -->", part), fmt.Sprintf("<!-- end %s -->", part)
	before, rest, ok := strings.Cut(string(old), begin)
	if !ok {
		return fmt.Errorf("%s: no line %q", file, begin)
	}
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return fmt.Errorf("%s: no line %q after the beginning of the part", file, end)
	}
	return os.WriteFile(file, []byte(before+begin+"\n\n"+strings.TrimSpace(text)+"\n\n"+end+after), 0o644)
}
