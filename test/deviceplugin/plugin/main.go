// Command plugin is a device plugin for tests in a process of its own, until it is
// told to end.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/holdfast-dev/holdfast/test/deviceplugin"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "plugin:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir := flag.String("dir", "", "the folder in which agents listen for device plugins")
	resource := flag.String("resource", "", "that it has")
	devices := flag.String("devices", "", "their IDs, with commas between them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	return deviceplugin.New(deviceplugin.Config{Dir: *dir, Resource: *resource, Devices: strings.Split(*devices, ",")}).Run(ctx)
}
