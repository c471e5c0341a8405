package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// grace is how long a component may take to end when it is asked to. An API
// server with watches takes a minute; the store has what it acknowledged anyway.
const grace = 3 * time.Second

// A process is a component that was started.
type process struct {
	cmd    *exec.Cmd
	wanted atomic.Bool   // its end is wanted
	done   chan struct{} // closed when it has ended
}

// launch runs what comes in by starts, on one thread, until ctx is done. A
// process dies with the thread that started it (PR_SET_PDEATHSIG), and Go ends
// threads when it likes, but not this one: so a component dies if and
// only if this process does.
func launch(ctx context.Context, starts <-chan func()) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	for {
		select {
		case <-ctx.Done():
			return
		case start := <-starts:
			start()
		}
	}
}

// startProcess starts a component and watches it.
func (c *Cluster) startProcess(ctx context.Context, name Component) error {
	log, err := os.OpenFile(c.LogFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer log.Close()
	args := append([]string{string(name)}, c.arguments(name)...)
	p := &process{
		cmd:  exec.Command(c.cfg.Program, append(args, c.cfg.Arguments[name]...)...), //nolint:noctx // outlives the call
		done: make(chan struct{}),
	}
	p.cmd.Dir = c.cfg.Dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A group of its own: Ctrl-C in a terminal must not reach it before us.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}

	started := make(chan error, 1)
	select {
	case c.starts <- func() { started <- p.cmd.Start() }:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	c.mu.Lock()
	c.processes[name] = p
	c.mu.Unlock()
	go c.watch(name, p)
	return nil
}

// watch waits for the end of p, which stopProcess waits for.
func (c *Cluster) watch(name Component, p *process) {
	err := p.cmd.Wait()
	if !p.wanted.Load() {
		c.ended <- fmt.Errorf("%s ended by itself: %w (see %s)", name, cause(err), c.LogFile(name))
	}
	close(p.done)
}

func cause(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// process returns the running process of a component, or nil.
func (c *Cluster) process(name Component) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.processes[name]
}

// stopProcess sends sig and waits for the end, which SIGKILL brings about if
// grace does not.
func (c *Cluster) stopProcess(name Component, sig syscall.Signal) error {
	p := c.process(name)
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	p.wanted.Store(true)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	// A signal to what has ended is an error that says nothing new. A frozen
	// process must run to hear one.
	_ = p.cmd.Process.Signal(sig)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	select {
	case <-p.done:
	case <-timer.C:
		c.cfg.Log.Debug("Component does not end and is killed", "part", string(name))
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	c.mu.Lock()
	delete(c.processes, name)
	c.mu.Unlock()
	c.cfg.Log.Debug("Component ended", "part", string(name))
	return nil
}
