// Command up measures a node from outside: how long `holdfast up` takes, what
// an idle node costs, how soon a pod runs. It runs the built binary in a
// temporary folder on free ports, asks only the API, the control socket and
// /proc, and removes the node when it is done.
//
// It prints a table, and puts it into a Markdown file between two markers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/bench/page"
	"github.com/holdfast-dev/holdfast/bench/podlife"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench/up:", err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	bin    string
	out    string
	json   string
	starts int
	pods   int
	bursts int
	build  bool
	settle time.Duration
	idle   time.Duration
	events bool
	life   bool

	updates int
}

func run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.bin, "bin", "bin/holdfast", "the binary to measure")
	flag.StringVar(&o.out, "out", "docs/benchmarks.md", "Markdown file to put the table into; empty: none")
	flag.StringVar(&o.json, "json", "", "file to write every single number to, as JSON")
	flag.IntVar(&o.starts, "starts", 5, "how many starts of each kind")
	flag.IntVar(&o.pods, "pods", 20, "how many pods to start, one at a time")
	flag.IntVar(&o.bursts, "bursts", 3, fmt.Sprintf("how often to start %d pods at once", manyPods))
	flag.BoolVar(&o.build, "build", true, "time builds of the binary too, the first from nothing: about eight minutes")
	flag.DurationVar(&o.settle, "settle", 30*time.Second, "how long to leave a node alone before it counts as idle")
	flag.DurationVar(&o.idle, "idle", time.Minute, "how long to watch an idle node")
	flag.BoolVar(&o.events, "events", false, "measure only how soon the API says that a container has ended, -pods times")
	flag.BoolVar(&o.life, "podlife", false, "measure only pods' lives: one at a time, bursts, a full node")
	flag.IntVar(&o.updates, "updates", 0, "measure only how soon a changed ConfigMap is seen in a pod, so many times")
	flag.Parse()
	if o.starts < 1 || o.pods < 1 || o.bursts < 1 || o.idle < time.Second {
		return errors.New("-starts, -pods and -bursts must be at least 1, -idle at least 1s")
	}
	var err error
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}

	if o.events {
		d, err := events(ctx, o)
		if err != nil {
			return err
		}
		fmt.Fprint(os.Stdout, d.table())
		return writePage(o.out, "events", d.table())
	}
	if o.updates > 0 {
		took, err := updates(ctx, o)
		if err != nil {
			return err
		}
		fmt.Fprint(os.Stdout, updatesTable(took))
		return writePage(o.out, "updates", updatesTable(took))
	}
	if o.life {
		l, err := life(ctx, o)
		if err != nil {
			return err
		}
		text := podlife.Table(l, nil)
		fmt.Fprint(os.Stdout, text)
		return writePage(o.out, "podlife-up", text)
	}
	r, err := measure(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprint(os.Stdout, r.markdown())
	if o.json != "" {
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(data, '\n'), 0o644); err != nil {
			return err
		}
	}
	return writePage(o.out, "measured", r.markdown())
}

// writePage puts text into a part of a Markdown file, if there is one.
func writePage(file, part, text string) error {
	if file == "" {
		return nil
	}
	return page.Replace(file, part, text)
}

// say tells how far the run is. Nobody parses it.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
