package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A session is a program under way that a test talks to.
type session struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	tty   *os.File // the near end of its terminal; nil: it has pipes
	ended chan struct{}
	err   error // valid once ended is closed

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

// Write takes what the program prints.
func (s *session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *session) printed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// start runs kubectl with pipes; env is beside the environment.
func (n *node) start(env []string, args ...string) *session {
	n.t.Helper()
	s := n.newSession(env, args)
	in, err := s.cmd.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	s.in = in
	s.cmd.Stdout, s.cmd.Stderr = s, s
	s.run(func() {})
	return s
}

// startInTerminal runs kubectl in a terminal of its own, 80 columns by 24 rows.
func (n *node) startInTerminal(args ...string) *session {
	n.t.Helper()
	near, far := openTerminal(n.t)
	s := n.newSession(nil, args)
	s.in, s.tty = near, near
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = far, far, far
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s.resize(80, 24)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(s, near) // ends with an error, when the far end is closed
	}()
	s.run(func() {
		_ = far.Close()
		<-copied
		_ = near.Close()
	})
	return s
}

func (n *node) newSession(env, args []string) *session {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), 2*patience)
	cmd := exec.CommandContext(ctx, kubectlBin, append([]string{"--kubeconfig", filepath.Join(n.root, "admin.kubeconfig")}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	s := &session{t: n.t, cmd: cmd, ended: make(chan struct{})}
	n.t.Cleanup(func() {
		cancel()
		<-s.ended
	})
	return s
}

// run starts the program; after is called when it has ended.
func (s *session) run(after func()) {
	s.t.Helper()
	if err := s.cmd.Start(); err != nil {
		close(s.ended)
		s.t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		s.err = s.cmd.Wait()
		after()
	}()
}

func (s *session) send(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, text); err != nil {
		s.t.Errorf("send %q: %v", text, err)
	}
}

// expect waits until the program has printed text.
func (s *session) expect(text string) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for !strings.Contains(s.printed(), text) {
		select {
		case <-s.ended:
			if !strings.Contains(s.printed(), text) {
				s.t.Fatalf("%s ended (%v) without %q, but with:\n%s", s.cmd, s.err, text, s.printed())
			}
		default:
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: no %q within %v, but:\n%s", s.cmd, text, patience, s.printed())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// wait waits until the program has ended and returns what it printed.
func (s *session) wait() (string, error) {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.t.Fatalf("%s goes on after %v; it printed:\n%s", s.cmd, patience, s.printed())
	}
	return s.printed(), s.err
}

// interrupt ends the program as Ctrl-C does.
func (s *session) interrupt() {
	s.t.Helper()
	// A program that has just ended of itself, as kubectl does when nobody
	// listens at a forwarded port, needs no signal.
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Error(err)
	}
	_, _ = s.wait() // how an interrupted program ends is its own business
}

func (s *session) resize(columns, rows uint16) {
	s.t.Helper()
	if err := unix.IoctlSetWinsize(int(s.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		s.t.Fatal(err)
	}
}

// openTerminal makes a pseudo terminal and returns both ends.
func openTerminal(t *testing.T) (near, far *os.File) {
	t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(near.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return near, far
}
