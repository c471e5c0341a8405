package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/test/guest/wire"
)

// A Command is one program to run in the machine.
type Command struct {
	Argv    []string
	Env     []string // added to the machine's own: NAME=value
	Stdin   string
	Timeout time.Duration // default 2 minutes; the program is then killed
	// Stdout and Stderr get what it prints as it comes, beside the result.
	Stdout, Stderr io.Writer
}

// A Result is what a program printed, and its exit code: -1 where a signal
// ended it.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a program to its end. The error says that it could not run or did not end
// in time; a code other than zero is no error. Where ctx ends first, so does
// the machine.
func (m *Machine) Run(ctx context.Context, c Command) (Result, error) {
	if m.qemu == nil {
		return Result{}, ErrOff
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Minute
	}
	request := wire.Request{Argv: c.Argv, Env: c.Env, Stdin: []byte(c.Stdin), Timeout: c.Timeout}
	if err := json.NewEncoder(m.stdin).Encode(request); err != nil {
		return Result{}, m.withConsole(errors.Join(err, m.off()))
	}
	// The machine kills what takes too long; this is for a machine that hangs.
	timer := time.NewTimer(c.Timeout + time.Minute)
	defer timer.Stop()
	var stdout, stderr bytes.Buffer
	for {
		select {
		case answer, ok := <-m.answers:
			if !ok {
				return Result{}, m.withConsole(fmt.Errorf("the machine ended during %q: %w", strings.Join(c.Argv, " "), m.off()))
			}
			_, err1 := tee(&stdout, c.Stdout).Write(answer.Stdout)
			_, err2 := tee(&stderr, c.Stderr).Write(answer.Stderr)
			if err := errors.Join(err1, err2); err != nil {
				return Result{}, errors.Join(err, m.CutPower())
			}
			if !answer.Done {
				continue
			}
			result := Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: answer.Code}
			if answer.Error != "" {
				return result, fmt.Errorf("%s: %s\n%s%s", strings.Join(c.Argv, " "), answer.Error, result.Stdout, result.Stderr)
			}
			return result, nil
		case <-timer.C:
			return Result{}, m.withConsole(fmt.Errorf("the machine hangs during %q: %w", strings.Join(c.Argv, " "), m.CutPower()))
		case <-ctx.Done():
			return Result{}, errors.Join(ctx.Err(), m.CutPower())
		}
	}
}

func tee(buffer *bytes.Buffer, also io.Writer) io.Writer {
	if also == nil {
		return buffer
	}
	return io.MultiWriter(buffer, also)
}

// CutPower ends the machine as a pulled plug does: its kernel writes nothing
// any more. On a machine that is off it does nothing.
func (m *Machine) CutPower() error {
	if m.qemu == nil {
		return nil
	}
	err := m.qemu.Process.Kill()
	for range m.answers { // until it has ended
	}
	_ = m.off()
	return err
}

// Reboot is ShutDown and Boot.
func (m *Machine) Reboot(ctx context.Context) error {
	if err := m.ShutDown(); err != nil {
		return err
	}
	return m.Boot(ctx)
}

// ShutDown ends the machine in order: every process is asked to stop, then
// killed, and the disks are unmounted.
func (m *Machine) ShutDown() error {
	if m.qemu == nil {
		return ErrOff
	}
	if err := json.NewEncoder(m.stdin).Encode(wire.Request{Reboot: true}); err != nil {
		return err
	}
	timer := time.NewTimer(bootTimeout)
	defer timer.Stop()
	for {
		select {
		case _, ok := <-m.answers:
			if ok {
				continue
			}
			if err := m.off(); err != nil {
				return m.withConsole(fmt.Errorf("shut down: %w", err))
			}
			return nil
		case <-timer.C:
			return m.withConsole(fmt.Errorf("the machine did not shut down within %v: %w", bootTimeout, m.CutPower()))
		}
	}
}

// off takes note that qemu has ended, and returns how.
func (m *Machine) off() error {
	if m.qemu == nil {
		return ErrOff
	}
	m.qemu = nil
	return <-m.ended
}
