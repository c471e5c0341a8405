// Command init is the first program of the emulated machine: it mounts what a
// distribution's would, loads the kernel's modules, prepares the disks, and runs
// the programs that the test asks for.
//
// It is two processes. Number 1 only collects the processes whose parent ended;
// the other, its child, works.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	ctx := context.Background()
	var err error
	if os.Getpid() == 1 {
		err = first(ctx)
	} else {
		err = work(ctx)
	}
	fmt.Fprintln(os.Stderr, "init:", err)
	// On the console of a machine that cannot go on, its end is what the test
	// waits for.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// first prepares the machine, starts the worker and then only collects.
func first(ctx context.Context) error {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	if err := prepare(ctx); err != nil {
		return err
	}
	worker := exec.CommandContext(ctx, "/init")
	worker.Env = environment
	worker.Stdin, worker.Stdout, worker.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := worker.Start(); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("collect processes: %w", err)
		case pid == worker.Process.Pid:
			return fmt.Errorf("the worker ended: %v", status)
		}
	}
}

// reboot ends the machine in order, as a distribution's shutdown does.
func reboot(ctx context.Context) error {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		// All but this process and number 1. What takes longer is killed.
		_ = syscall.Kill(-1, sig)
		for range 100 {
			if alone() {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	unix.Sync()
	// From the inside out; what is still busy was synced above.
	out, err := exec.CommandContext(ctx, "/bin/umount", "-a", "-r").CombinedOutput()
	if err != nil {
		fmt.Printf("init: umount: %v: %s\n", err, out)
	}
	return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}
