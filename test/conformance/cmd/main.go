// Command cmd runs upstream's node tests against a Holdfast node of its own, and
// says which passed. See docs/conformance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/test/conformance"
)

const usage = `usage: go run ./test/conformance/cmd [flags]

Starts a node with bin/holdfast, runs upstream's node tests against it, compares
what passed with test/conformance/tests.tsv, and removes the node. It fails if a
test fails that the table has as passing. As root, at the top of the checkout;
"make conformance" builds what it needs.

    go run ./test/conformance/cmd -groups 06,07
    go run ./test/conformance/cmd -focus 'exec liveness probe'

`

type flags struct {
	groups, focus, out, root string
	procs                    int
	timeout                  time.Duration
	all, keep, quick, counts bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	asked, err := conformance.StandIn(ctx, os.Args, os.Stdout)
	if !asked {
		err = run(ctx, parse())
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func parse() flags {
	var f flags
	flag.StringVar(&f.groups, "groups", "", "numbers of groups, such as 05,06 (default all)")
	flag.StringVar(&f.focus, "focus", "", "regular expression of the tests' words or places (default all)")
	flag.StringVar(&f.out, "out", filepath.Join("dist", "conformance"), "folder for the report and the logs")
	flag.IntVar(&f.procs, "procs", 8, "tests at once")
	flag.DurationVar(&f.timeout, "timeout", 3*time.Hour, "for all tests together")
	flag.BoolVar(&f.all, "all", false, "run those too that the table has as out")
	flag.BoolVar(&f.counts, "counts", false, "only print the table's counts, for docs/conformance.md")
	flag.BoolVar(&f.quick, "quick", false, "leave out the slow ones, which take minutes each")
	flag.StringVar(&f.root, "root", "", "root folder of a node that an earlier run kept; it stays (default a new node)")
	flag.BoolVar(&f.keep, "keep", false, "leave the node running, and say how to remove it")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	return f
}

func run(ctx context.Context, f flags) (err error) {
	rows, err := selectRows(f)
	if err != nil {
		return err
	}
	if f.counts {
		_, err := fmt.Fprint(os.Stdout, conformance.CountTable(rows))
		return err
	}
	if f.out, err = filepath.Abs(f.out); err != nil {
		return err
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	tools, err := filepath.Abs(filepath.Join("bin", "tools"))
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	suite := &conformance.Suite{
		StandIn: self,
		Ginkgo:  filepath.Join(tools, "ginkgo"), Program: filepath.Join(tools, "e2e_node.test"), Dir: f.out, Procs: f.procs, Timeout: f.timeout,
	}
	listed, err := suite.List(ctx)
	if err != nil {
		return err
	}
	var specs []conformance.Spec
	for _, s := range listed {
		if f.quick && s.Slow() {
			continue
		}
		if slices.ContainsFunc(rows, func(r *conformance.Row) bool { return (f.all || r.Out == "") && r.Matches(s.Test) }) {
			specs = append(specs, s)
		}
	}
	ran, trouble, err := onNode(ctx, f, tools, func(n *conformance.Node) ([]conformance.Spec, []string, error) {
		fmt.Fprintf(os.Stderr, "running %d tests, %d at once; they are logged to %s\n", len(specs), f.procs, filepath.Join(f.out, "run.log"))
		return suite.Run(ctx, n, specs)
	})
	if err != nil {
		return err
	}
	if f.quick {
		rows = slices.DeleteFunc(rows, func(r *conformance.Row) bool {
			return slices.ContainsFunc(listed, func(s conformance.Spec) bool { return s.Slow() && r.Matches(s.Test) })
		})
	}
	return report(f.out, conformance.Judge(rows, ran), trouble)
}

// selectRows reads the table and returns the rows that are asked for.
func selectRows(f flags) ([]*conformance.Row, error) {
	table, err := os.Open(filepath.Join("test", "conformance", "tests.tsv"))
	if err != nil {
		return nil, err
	}
	defer table.Close()
	rows, err := conformance.ReadTable(table)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", table.Name(), err)
	}
	focus, err := regexp.Compile(f.focus)
	if err != nil {
		return nil, fmt.Errorf("-focus: %w", err)
	}
	rows = slices.DeleteFunc(rows, func(r *conformance.Row) bool {
		return f.groups != "" && !slices.Contains(strings.Split(f.groups, ","), r.Number()) ||
			!focus.MatchString(r.Test) && !focus.MatchString(r.Where)
	})
	if len(rows) == 0 {
		return nil, errors.New("no test of the table is in these groups and has these words")
	}
	return rows, nil
}

// share makes of a folder a mount that mounts of pods' spread from, as the
// whole of a machine with systemd is; unshare takes that back.
func share(dir string) (unshare func() error, err error) {
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("make %s a mount: %w", dir, err)
	}
	unshare = func() error { return syscall.Unmount(dir, syscall.MNT_DETACH) }
	if err := syscall.Mount("", dir, "", syscall.MS_SHARED, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("make the mount %s shared: %w", dir, err), unshare())
	}
	return unshare, nil
}

// onNode starts a node, calls then, and removes the node.
func onNode(ctx context.Context, f flags, tools string, then func(*conformance.Node) ([]conformance.Spec, []string, error)) (ran []conformance.Spec, trouble []string, err error) {
	binary, err := filepath.Abs(filepath.Join("bin", "holdfast"))
	if err != nil {
		return nil, nil, err
	}
	images, err := conformance.Images(ctx, conformance.Programs{
		Agnhost: filepath.Join(tools, "agnhost"), NoNewPrivs: filepath.Join(tools, "nonewprivs"), Fetch: filepath.Join(tools, "fetch"),
		Pause: filepath.Join("bin", "runtime", "demo"), Busybox: "/bin/busybox", Certificate: tools,
	})
	if err != nil {
		return nil, nil, err
	}
	mirror, err := conformance.Mirror(ctx, images)
	if err != nil {
		return nil, nil, err
	}
	defer mirror.Close()
	if f.root != "" {
		n := &conformance.Node{Binary: binary, Root: f.root, Mirror: mirror.URL}
		if err := n.Connect(ctx); err != nil {
			return nil, nil, err
		}
		return then(n)
	}
	root, err := os.MkdirTemp("", "holdfast-conformance-")
	if err != nil {
		return nil, nil, err
	}
	unshare, err := share(root)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(root))
	}
	fmt.Fprintf(os.Stderr, "starting a node in %s\n", root)
	n := &conformance.Node{Binary: binary, Root: root, Mirror: mirror.URL, NoHealth: !conformance.HealthPortFree()}
	if n.NoHealth {
		fmt.Fprintln(os.Stderr, "another run goes on here: tests that stop the node will fail")
	}
	defer func() {
		if f.keep {
			fmt.Fprintf(os.Stderr, "the node is kept: run tests on it with -root %s; remove it with: %s uninstall --yes --root-dir %s; umount %s; rm -r %s\n", root, binary, root, root, root)
			return
		}
		err = errors.Join(err, n.Remove(context.WithoutCancel(ctx), filepath.Join(f.out, "node.log")), unshare(), os.RemoveAll(root))
	}()
	if err := n.Start(ctx, images); err != nil {
		return nil, nil, err
	}
	return then(n)
}

// report writes what came of the tests to the terminal and to a file.
func report(dir string, verdicts []conformance.Verdict, trouble []string) (err error) {
	var text strings.Builder
	if err := conformance.WriteSummary(&text, verdicts); err != nil {
		return err
	}
	for _, t := range trouble {
		fmt.Fprintf(&text, "\nTROUBLE: %s\n", t)
	}
	fmt.Fprint(os.Stdout, text.String())
	if err := os.WriteFile(filepath.Join(dir, "summary.txt"), []byte(text.String()), 0o644); err != nil {
		return err
	}
	if failed := conformance.Failed(verdicts); len(failed) > 0 {
		return fmt.Errorf("%d of %d tests failed", len(failed), len(verdicts))
	}
	return nil
}
