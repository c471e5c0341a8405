package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/test/guest/wire"
)

// work serves the port, or a person at the console.
func work(ctx context.Context) error {
	parameters, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	if bytes.Contains(parameters, []byte(wire.Shell)) {
		return shell(ctx)
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	s := server{out: json.NewEncoder(port)}
	if err := s.answer(wire.Answer{Ready: true}); err != nil {
		return err
	}
	for in := json.NewDecoder(port); ; {
		var request wire.Request
		if err := in.Decode(&request); err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		if request.Reboot {
			return reboot(ctx)
		}
		if err := s.answer(s.run(ctx, request)); err != nil {
			return err
		}
	}
}

// openPort opens the serial port by the name that the machine gave it.
func openPort() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, path := range names {
		name, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(string(name)) == wire.Port {
			// As a plain file: the port cannot wait in Go's poller.
			fd, err := syscall.Open(filepath.Join("/dev", filepath.Base(filepath.Dir(path))), syscall.O_RDWR|syscall.O_CLOEXEC, 0)
			if err != nil {
				return nil, err
			}
			return os.NewFile(uintptr(fd), wire.Port), nil
		}
	}
	return nil, fmt.Errorf("no serial port %s", wire.Port)
}

// shell gives the console to a person, then ends the machine.
func shell(ctx context.Context) error {
	fmt.Fprintln(os.Stdout, "\nThe emulated machine. bin/holdfast is in PATH, its disk at /var/lib/holdfast; \"exit\" ends it.")
	cmd := exec.CommandContext(ctx, "/bin/setsid", "/bin/cttyhack", "/bin/sh", "-l")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = environment
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stdout, "init: the shell ended:", err)
	}
	return reboot(ctx)
}

// A server runs programs and answers with what they print.
type server struct {
	mu  sync.Mutex // guards out
	out *json.Encoder
}

func (s *server) answer(a wire.Answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Encode(a)
}

// run runs one program to its end. What it left running in the background is
// not waited for.
func (s *server) run(ctx context.Context, request wire.Request) wire.Answer {
	if len(request.Argv) == 0 {
		return wire.Answer{Done: true, Error: "no program named"}
	}
	if request.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, request.Timeout)
		defer cancel()
	}
	program, err := find(request.Argv[0])
	if err != nil {
		return wire.Answer{Done: true, Code: -1, Error: err.Error()}
	}
	cmd := exec.CommandContext(ctx, program, request.Argv[1:]...)
	cmd.Env = append(append([]string{}, environment...), request.Env...)
	cmd.Stdin = bytes.NewReader(request.Stdin)
	cmd.Stdout = &output{s, func(p []byte) wire.Answer { return wire.Answer{Stdout: p} }}
	cmd.Stderr = &output{s, func(p []byte) wire.Answer { return wire.Answer{Stderr: p} }}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	answer := wire.Answer{Done: true, Code: -1}
	if cmd.ProcessState != nil {
		answer.Code = cmd.ProcessState.ExitCode()
	}
	_, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		answer.Error = fmt.Sprintf("not done within %v, killed", request.Timeout)
	case err != nil && !exited && !errors.Is(err, exec.ErrWaitDelay):
		answer.Error = err.Error()
	}
	return answer
}

// find looks a program up in the machine's PATH.
func find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, _ := strings.CutPrefix(environment[0], "PATH=")
	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, name)
		if info, err := os.Stat(candidate); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("no program %s in %s", name, path)
}

// output sends what a program prints as it comes.
type output struct {
	s    *server
	wrap func([]byte) wire.Answer
}

func (o *output) Write(p []byte) (int, error) {
	if err := o.s.answer(o.wrap(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

var _ io.Writer = (*output)(nil)
