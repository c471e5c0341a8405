// Command report reads what "go test -json" writes, shows what failed, counts,
// names the slowest tests, and fails where a test was skipped that need not be.
//
// Its arguments are the table of host gaps, see test/host-gaps.txt, and a file to
// which it adds a line for each test that failed: a run of several layers shows
// that at its end. The variable HOLDFAST_HOST says which kind of host this is
// (default vm). In the unit layer (HOLDFAST_LAYER=unit) a test that needs root or
// a real part may be skipped: the integration layer runs it.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/test/hostgaps"
)

// event is one line of test2json's output.
type event struct {
	Action     string
	Package    string
	ImportPath string // of what is built, in place of Package
	Test       string
	Output     string
	Elapsed    float64 // seconds

	FailedBuild string // in a package's end, that it never began
}

type key struct{ pkg, test string }

func (k key) String() string {
	return strings.TrimSpace(strings.TrimPrefix(k.pkg, "github.com/holdfast-dev/holdfast/") + " " + k.test)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ... | report host-gaps.txt failed.txt")
		os.Exit(2)
	}
	if err := report(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func report(gaps, failed string) error {
	table, err := hostgaps.Read(gaps)
	if err != nil {
		return err
	}
	rule := skipRule{table: table, host: os.Getenv("HOLDFAST_HOST"), unit: os.Getenv("HOLDFAST_LAYER") == "unit"}
	if rule.host == "" {
		rule.host = "vm"
	}
	list, err := os.OpenFile(failed, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(run(os.Stdin, os.Stdout, list, rule), list.Close())
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

// run copies failures to w, and returns an error if anything failed or was
// skipped without leave. Each such test is a line of failed.
func run(r io.Reader, w, failed io.Writer, rule skipRule) error {
	t := &tally{w: w, rule: rule, output: map[key][]string{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(w, lines.Text()) // not from a test: the compiler's words
			continue
		}
		t.take(e)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	t.sum()
	for _, line := range t.bad {
		if _, err := fmt.Fprintln(failed, line); err != nil {
			return err
		}
	}
	if len(t.bad) > 0 {
		return errors.New("not all is well")
	}
	return nil
}

// A tally is what is known of the tests so far.
type tally struct {
	w      io.Writer
	rule   skipRule
	output map[key][]string // of what has not passed
	begun  []key            // tests that have not ended, in the order of their starts
	took   []took           // tests with no test above them

	passed, failed, skipped int
	bad                     []string // what went wrong, a line each
}

type took struct {
	key
	seconds float64
}

func (t *tally) take(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "run":
		t.begun = append(t.begun, k)
	case "output":
		t.output[k] = append(t.output[k], e.Output)
	case "build-output":
		built := key{pkg: e.ImportPath}
		t.output[built] = append(t.output[built], e.Output)
	case "build-fail":
		t.show(key{pkg: e.ImportPath})
		t.bad = append(t.bad, key{pkg: e.ImportPath}.String()+": does not build")
	case "pass":
		t.end(e)
		if e.Test != "" {
			t.passed++
		}
		delete(t.output, k)
	case "fail":
		t.end(e)
		if e.Test == "" {
			t.failPackage(e)
			return
		}
		t.failed++
		t.show(k)
		if !slices.ContainsFunc(t.bad, func(line string) bool { return strings.HasPrefix(line, k.String()+"/") }) {
			t.bad = append(t.bad, k.String()) // else a test within says it
		}
	case "skip":
		t.end(e)
		t.skip(k)
	}
}

func (t *tally) show(k key) {
	fmt.Fprint(t.w, strings.Join(t.output[k], ""))
	delete(t.output, k)
}

// end takes note that a test has ended, and how long it took. Where it stood
// still for parallel ones, that does not count.
func (t *tally) end(e event) {
	k := key{e.Package, e.Test}
	t.begun = slices.DeleteFunc(t.begun, func(b key) bool { return b == k })
	if e.Test != "" && !strings.Contains(e.Test, "/") {
		t.took = append(t.took, took{k, e.Elapsed})
	}
}

// failPackage shows what a package's own process said, and the tests that it
// took with it: after a panic, or past the time limit.
func (t *tally) failPackage(e event) {
	pkg := key{pkg: e.Package}
	said := e.FailedBuild != "" || slices.ContainsFunc(t.bad, func(line string) bool { return strings.HasPrefix(line, pkg.String()+" ") })
	for _, k := range t.begun {
		if k.pkg == e.Package {
			said = true
			t.failed++
			t.show(k)
			t.bad = append(t.bad, k.String()+": did not end")
		}
	}
	t.begun = slices.DeleteFunc(t.begun, func(k key) bool { return k.pkg == e.Package })
	t.show(pkg)
	if !said {
		t.bad = append(t.bad, pkg.String()+": failed outside of its tests")
	}
}

func (t *tally) skip(k key) {
	if k.test == "" {
		return // a package without tests
	}
	t.skipped++
	note, bad := t.rule.judge(strings.Join(t.output[k], ""))
	if note != "" {
		fmt.Fprintf(t.w, "%s: %s\n", note, k)
	}
	if bad {
		t.show(k)
		t.bad = append(t.bad, k.String()+": skipped")
	}
	delete(t.output, k)
}

// sum prints the slowest tests and the counts.
func (t *tally) sum() {
	const many, slow = 10, 1 // seconds
	slices.SortStableFunc(t.took, func(a, b took) int { return cmp.Compare(b.seconds, a.seconds) })
	for i, one := range t.took {
		if i == many || one.seconds < slow {
			break
		}
		fmt.Fprintf(t.w, "%6.1f s  %s\n", one.seconds, one.key)
	}
	fmt.Fprintf(t.w, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
}
