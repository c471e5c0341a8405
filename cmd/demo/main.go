// Command demo is the program of the image holdfast.local/demo, and the entry
// of the pause image.
//
// It does one small thing per command, so that a manifest can show probes,
// volumes, limits and exit codes on a machine that can pull no image. It is
// static and needs nothing in its image but itself. It runs as process 1 of a
// container: there a signal without a handler is ignored and orphans become
// its children, so every command that waits handles SIGTERM, and pause reaps.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

const usage = `demo: small things to run in a container

  demo serve [--addr ADDR]     answer HTTP on ADDR (default :$PORT or :8080); /healthz says ok
  demo echo [TEXT...]          print TEXT
  demo sleep DURATION          wait (30, 1.5s, 10m, forever); SIGTERM ends it at once
  demo write PATH TEXT         replace the file at PATH by TEXT and a newline
  demo cat PATH...             print files
  demo ls PATH...              list files or folders: mode, owner, size, name
  demo env [NAME...]           print the environment, or the named variables
  demo mounts                  print this container's mount table
  demo get URL                 print what an HTTP server answers; not 2xx is an error
  demo exit CODE               end with CODE (0 to 255)
  demo burn cpu [DURATION]             keep one core busy (default forever)
  demo burn memory SIZE [DURATION]     hold SIZE bytes of memory (64Mi, 1G)
  demo burn disk PATH SIZE             write SIZE bytes to the file at PATH
  demo pause                   wait for SIGTERM or SIGINT, reaping orphans
`

// An exitError ends the program with a code of its own.
type exitError int

func (e exitError) Error() string { return "exit code " + strconv.Itoa(int(e)) }

// errUsage is returned for a command line that makes no sense.
var errUsage = errors.New("see demo --help")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	os.Exit(exitCode(err, os.Stderr))
}

// exitCode says err on w and returns the code to end with.
func exitCode(err error, w io.Writer) int {
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, errUsage):
		fmt.Fprintf(w, "demo: %v\n", err)
		return 2
	default:
		fmt.Fprintf(w, "demo: %v\n", err)
		return 1
	}
}

// run runs one command line. ctx ends with the first SIGTERM or SIGINT.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("a command is missing: %w", errUsage)
	}
	name, args := args[0], args[1:]
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") && name != "echo" {
		name = "help"
	}
	switch name {
	case "help", "--help", "-h":
		_, err := io.WriteString(out, usage)
		return err
	case "serve":
		return serve(ctx, args, out)
	case "echo":
		_, err := fmt.Fprintln(out, strings.Join(args, " "))
		return err
	case "sleep":
		return sleep(ctx, args)
	case "write":
		return write(args)
	case "cat":
		return cat(args, out)
	case "ls":
		return list(args, out)
	case "env":
		return env(args, out)
	case "mounts":
		return cat([]string{"/proc/self/mountinfo"}, out)
	case "get":
		return get(ctx, args, out)
	case "exit":
		return exit(args)
	case "burn":
		return burn(ctx, args, out)
	case "pause":
		return pause(ctx)
	default:
		return fmt.Errorf("no command %q: %w", name, errUsage)
	}
}

func exit(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("exit takes one code: %w", errUsage)
	}
	code, err := strconv.ParseUint(args[0], 10, 8)
	if err != nil {
		return fmt.Errorf("exit code %q is not a number from 0 to 255: %w", args[0], errUsage)
	}
	return exitError(code)
}

func env(args []string, out io.Writer) error {
	if len(args) == 0 {
		_, err := fmt.Fprintln(out, strings.Join(os.Environ(), "\n"))
		return err
	}
	var errs []error
	for _, name := range args {
		value, ok := os.LookupEnv(name)
		if !ok {
			errs = append(errs, fmt.Errorf("variable %s is not set", name))
			continue
		}
		fmt.Fprintln(out, value)
	}
	return errors.Join(errs...)
}
