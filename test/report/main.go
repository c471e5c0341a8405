// Command report reads what "go test -json" writes, shows what failed, counts,
// and fails where a test was skipped that need not be.
//
// Its argument is the table of host gaps: lines of "package test reason", "#"
// begins a comment. In the unit layer (HOLDFAST_LAYER=unit) a test that needs
// root or a real part may be skipped: the integration layer runs it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is one line of test2json's output.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

type key struct{ pkg, test string }

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ... | report host-gaps.txt")
		os.Exit(2)
	}
	gaps, err := readGaps(os.Args[1])
	if err == nil {
		err = run(os.Stdin, os.Stdout, gaps, os.Getenv("HOLDFAST_LAYER") == "unit")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// readGaps reads the table of tests that a kind of host cannot run.
func readGaps(path string) (map[key]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	gaps := map[key]string{}
	for i, line := range strings.Split(string(data), "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) < 3 {
			return nil, fmt.Errorf("%s:%d: want package, test and reason", path, i+1)
		}
		gaps[key{fields[0], fields[1]}] = strings.Join(fields[2:], " ")
	}
	return gaps, nil
}

// run copies failures to w and returns an error if anything failed or was
// skipped without leave.
func run(r io.Reader, w io.Writer, gaps map[key]string, unit bool) error {
	var passed, failed, skipped int
	var bad bool
	output := map[key][]string{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(w, lines.Text()) // not from a test: the compiler's words
			continue
		}
		k := key{e.Package, e.Test}
		switch e.Action {
		case "output", "build-output":
			output[k] = append(output[k], e.Output)
		case "build-fail":
			bad = true
			fmt.Fprint(w, strings.Join(output[k], ""))
		case "pass":
			if e.Test != "" {
				passed++
			}
			delete(output, k)
		case "fail":
			bad = true
			if e.Test != "" {
				failed++
			}
			fmt.Fprint(w, strings.Join(output[k], ""))
		case "skip":
			if e.Test == "" {
				continue // a package without tests
			}
			skipped++
			reason, listed := gaps[k]
			switch {
			case listed:
				fmt.Fprintf(w, "left out: %s %s: %s\n", e.Package, e.Test, reason)
			case !unit || !needsRealParts(output[k]):
				bad = true
				fmt.Fprintf(w, "SKIPPED, and not in the table of host gaps: %s %s\n%s", e.Package, e.Test, strings.Join(output[k], ""))
			}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if bad {
		return fmt.Errorf("not all is well")
	}
	return nil
}

// needsRealParts reports whether a skip came from testenv.Need.
func needsRealParts(output []string) bool {
	return strings.Contains(strings.Join(output, ""), ": needs ")
}
