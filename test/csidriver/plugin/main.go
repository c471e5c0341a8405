// Command plugin is a CSI driver for tests in a process of its own, as a real driver's
// node plugin is in its pod. It has its data and its socket in one folder and
// registers by a socket in another, until it is told to end.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-dev/holdfast/test/csidriver"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "plugin:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	name := flag.String("name", "", "of the driver")
	dir := flag.String("dir", "", "its data")
	registry := flag.String("registry", "", "the folder in which it registers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	d := csidriver.New(csidriver.Config{Name: *name, Dir: *dir, Mount: true})
	if err := d.Run(ctx, *registry); err != nil {
		return err
	}
	if broken := d.Broken(); len(broken) > 0 {
		return fmt.Errorf("rules were broken: %q", broken)
	}
	return nil
}
