// Command cmd boots the emulated machine by hand, with bin/holdfast and the
// runtime in it: with a shell on its console, or for one command.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/test/guest"
	"github.com/holdfast-dev/holdfast/test/guest/wire"
)

const usage = `usage: go run ./test/guest/cmd [--dir DIR] [COMMAND ARG...]
       go run ./test/guest/cmd --fetch

Boots an emulated machine with bin/holdfast and bin/runtime in /opt/holdfast,
and runs COMMAND in it, or a shell on its console ("exit" ends the machine,
Ctrl-A X pulls its plug).

`

func main() {
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	dir := flag.String("dir", "", "folder that keeps the machine's disk for the next time (default: a new one, removed at the end)")
	fetch := flag.Bool("fetch", false, "only download the machine's kernel, so that later runs need no network")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	var code int
	var err error
	if *fetch {
		err = guest.Fetch(ctx)
	} else {
		code, err = run(ctx, *dir, flag.Args())
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, dir string, argv []string) (int, error) {
	if dir == "" {
		temporary, err := os.MkdirTemp("", "holdfast-guest-")
		if err != nil {
			return 0, err
		}
		defer func() { _ = os.RemoveAll(temporary) }()
		dir = temporary
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	files := map[string]string{}
	for name, path := range map[string]string{"holdfast": "bin/holdfast", "runtime": "bin/runtime"} {
		if _, err := os.Stat(path); err != nil {
			return 0, fmt.Errorf("%w (run \"make build\", and this at the top of the checkout)", err)
		}
		files[filepath.Join("/opt/holdfast", name)] = path
	}
	m, err := guest.New(ctx, guest.Config{
		Dir: dir, Files: files,
		Disks: []wire.Disk{{MiB: 8192, FS: "ext4", Mount: "/var/lib/holdfast"}},
	})
	if err != nil {
		return 0, err
	}
	if len(argv) == 0 {
		return 0, m.Shell(ctx, func(cmd *exec.Cmd) {
			cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		})
	}
	if err := m.Boot(ctx); err != nil {
		return 0, err
	}
	result, err := m.Run(ctx, guest.Command{Argv: argv, Timeout: time.Hour, Stdout: os.Stdout, Stderr: os.Stderr})
	if err == nil {
		err = m.ShutDown()
	}
	return result.Code, err
}
