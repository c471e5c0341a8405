// Command volumes measures the volumes of a full node beside the volume manager
// and the volume plugins of the upstream kubelet, on the same disk: mounting
// and unmounting all of them at once, knowing them again after a restart, and
// giving 100,000 files to an fsGroup.
//
// Both sides mount for real. Objects come from memory on both, so what is
// measured is the volumes' own. The two are measured in turns in one process.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/holdfast-dev/holdfast/bench/page"
)

// progress takes how far the run is. Nobody parses it.
var progress = os.Stderr

func main() {
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/volumes:", err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	page   string
	dir    string
	rounds int
	pods   int
	files  int
}

func run(ctx context.Context) (err error) {
	var o options
	flag.StringVar(&o.page, "page", "", "Markdown page to write the tables into; empty: none")
	flag.StringVar(&o.dir, "dir", "/var/tmp", "folder on the disk to measure on")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each is measured; the median counts")
	flag.IntVar(&o.pods, "pods", 110, "how many pods have volumes")
	flag.IntVar(&o.files, "files", 100_000, "how many files are given to a group")
	flag.Parse()
	if o.rounds < 1 || o.pods < 1 || o.files < 1000 {
		return fmt.Errorf("-rounds and -pods must be at least 1, -files at least 1000")
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("mounting needs root")
	}
	head, err := page.Head("volumes", fmt.Sprintf("Median of %d", o.rounds))
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString(head)
	if err := lives(ctx, &text, o); err != nil {
		return err
	}
	if err := groups(ctx, &text, o); err != nil {
		return err
	}
	fmt.Fprint(os.Stdout, text.String())
	if o.page == "" {
		return nil
	}
	return page.Replace(o.page, "volumes", text.String())
}
