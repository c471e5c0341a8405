// Command pleg measures the pod lifecycle event generator beside upstream's:
// relists of runtimes in memory, events while nobody receives, and what both
// ends of the runtime's socket cost while nothing happens.
//
// Both sides see the same pods change in the same way. The relists of both are
// taken in turns in one process, and the least counts: on a machine that does
// other things, what is more is theirs. Idle costs are of a process each.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/holdfast-dev/holdfast/bench/page"
)

// progress takes how far the run is. Nobody parses it.
var progress = os.Stderr

func main() {
	klog.SetLogger(logr.Discard()) // upstream logs each event that it drops
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/pleg:", err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	page   string
	rounds int
	settle time.Duration
	idle   time.Duration
	side   string
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.page, "page", "", "Markdown page to write the tables into; empty: none")
	flag.IntVar(&o.rounds, "rounds", 11, "how often each relist is measured; the least counts")
	flag.DurationVar(&o.settle, "settle", 4*time.Minute, "how long both sides run before they count as idle")
	flag.DurationVar(&o.idle, "idle", 3*time.Minute, "how long idle sides are watched")
	flag.StringVar(&o.side, "idle-side", "", "of use to the command itself: measure one side, and print the CPU time of a minute")
	flag.Parse()
	if o.side != "" {
		return idleSide(ctx, o)
	}

	var text strings.Builder
	idle, err := startIdle(ctx, o)
	if err != nil {
		return err
	}
	if err := idle.table(&text); err != nil {
		return err
	}
	if err := relists(ctx, &text, o.rounds); err != nil {
		return err
	}
	if err := bursts(ctx, &text); err != nil {
		return err
	}
	fmt.Print(text.String())
	if o.page == "" {
		return nil
	}
	return page.Replace(o.page, "pleg", text.String())
}
