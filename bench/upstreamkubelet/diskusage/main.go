// Command diskusage measures how long it takes to know what a folder of small files
// takes: counted by the upstream kubelet, by Holdfast, by du and by find, with what the
// kernel knows of the files in memory and with nothing of it; and asked of a filesystem
// that counts by itself.
//
// All count the same files, in turns, and must come to the same result.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
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
		fmt.Fprintln(os.Stderr, "bench/diskusage:", err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	page   string
	dir    string
	rounds int
	files  []int

	minutes int
}

func run(ctx context.Context) error {
	var o options
	var files string
	flag.StringVar(&o.page, "page", "", "Markdown page to write the tables into; empty: none")
	flag.StringVar(&o.dir, "dir", "/var/tmp", "folder on the disk to measure on; a file takes 4 KiB of it")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each is measured; the median counts")
	flag.StringVar(&files, "files", "100000,1000000", "how many files there are, one table row for each number")
	flag.IntVar(&o.minutes, "minutes", 3, "how long the analyzers of a full node are watched, each")
	flag.Parse()
	for text := range strings.SplitSeq(files, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1000 {
			return fmt.Errorf("-files %q: want numbers of at least 1000", files)
		}
		o.files = append(o.files, n)
	}
	if o.rounds < 1 || o.minutes < 1 {
		return fmt.Errorf("-rounds and -minutes must be at least 1")
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("emptying the kernel's caches needs root")
	}
	head, err := page.Head("diskusage", fmt.Sprintf("Median of %d", o.rounds))
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString(head)
	if err := walks(ctx, &text, o); err != nil {
		return err
	}
	if err := groups(ctx, &text, o); err != nil {
		return err
	}
	if err := analyzers(ctx, &text, o); err != nil {
		return err
	}
	fmt.Fprint(os.Stdout, text.String())
	if o.page == "" {
		return nil
	}
	return page.Replace(o.page, "diskusage", text.String())
}
