// Command report reads what "go test -json" writes, shows what failed, counts,
// and fails where a test was skipped that need not be.
//
// Its argument is the table of host gaps, see test/host-gaps.txt; the variable
// HOLDFAST_HOST says which kind of host this is (default vm). In the unit layer
// (HOLDFAST_LAYER=unit) a test that needs root or a real part may be skipped: the
// integration layer runs it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/holdfast-dev/holdfast/test/hostgaps"
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
	table, err := hostgaps.Read(os.Args[1])
	if err == nil {
		rule := skipRule{table: table, host: os.Getenv("HOLDFAST_HOST"), unit: os.Getenv("HOLDFAST_LAYER") == "unit"}
		if rule.host == "" {
			rule.host = "vm"
		}
		err = run(os.Stdin, os.Stdout, rule)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// A skipRule says which tests may be skipped.
type skipRule struct {
	table hostgaps.Table
	host  string
	unit  bool // this is the unit layer
}

// judge returns what to say of a skipped test, given what it printed, and
// whether the skip is a failure.
func (r skipRule) judge(output string) (note string, bad bool) {
	missing, ok := hostgaps.Missing(output)
	if ok && r.unit {
		return "", false
	}
	gap, listed := r.table.Find(r.host, missing)
	switch {
	case !ok || !listed:
		return fmt.Sprintf("SKIPPED, and no gap of host %s in the table", r.host), true
	case gap.Instead == hostgaps.Guest:
		return "left to the guest, for want of " + missing, false
	default:
		return fmt.Sprintf("not run, for want of %s: %s", missing, gap.Reason), false
	}
}

// run copies failures to w and returns an error if anything failed or was
// skipped without leave.
func run(r io.Reader, w io.Writer, rule skipRule) error {
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
			said := strings.Join(output[k], "")
			note, failure := rule.judge(said)
			if note != "" {
				fmt.Fprintf(w, "%s: %s %s\n", note, e.Package, e.Test)
			}
			if failure {
				bad = true
				fmt.Fprint(w, said)
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
