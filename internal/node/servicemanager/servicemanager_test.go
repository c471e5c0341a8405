package servicemanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager listens as a service manager does.
type manager struct{ *net.UnixConn }

func listen(t *testing.T, name string) manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return manager{conn}
}

// hear returns the next datagram.
func (m manager) hear(t *testing.T) string {
	t.Helper()
	if err := m.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1024)
	n, err := m.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestLife(t *testing.T) {
	for name, socket := range map[string]string{
		"path": filepath.Join(t.TempDir(), "notify"), "abstract": fmt.Sprintf("@holdfast-test-%d", os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			m := listen(t, socket)
			ready := make(chan struct{})
			var ill atomic.Bool
			asked := make(chan struct{}, 100)
			n := New(Config{
				Socket: socket, Watchdog: 20 * time.Millisecond, Ready: ready, Log: slog.New(slog.DiscardHandler),
				Status: func(context.Context) string { return "2 pods" },
				Healthy: func(context.Context) error {
					if ill.Load() {
						asked <- struct{}{}
						return errors.New("stuck")
					}
					return nil
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- n.Run(ctx) }()
			const alive = "WATCHDOG=1\nSTATUS=2 pods"
			if got := m.hear(t); got != alive {
				t.Errorf("while it starts: got %q", got)
			}
			close(ready)
			for got := m.hear(t); got != "READY=1\nSTATUS=2 pods"; got = m.hear(t) {
				if got != alive {
					t.Fatalf("before it is ready: got %q", got)
				}
			}
			if got := m.hear(t); got != alive {
				t.Errorf("once ready: got %q", got)
			}
			ill.Store(true)
			<-asked
			<-asked // one more period: what was sent before it fell ill has arrived
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			var last string
			for last = m.hear(t); last == alive; last = m.hear(t) {
			}
			if last != "STOPPING=1" {
				t.Errorf("at the end: got %q", last)
			}
		})
	}
}

// TestIll holds that a node that is ready and not well gives no sign of life.
func TestIll(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	m := listen(t, socket)
	ready := make(chan struct{})
	close(ready)
	asked := make(chan struct{})
	n := New(Config{
		Socket: socket, Watchdog: 2 * time.Millisecond, Ready: ready, Log: slog.New(slog.DiscardHandler),
		Status: func(context.Context) string { return "" },
		Healthy: func(context.Context) error {
			asked <- struct{}{}
			return errors.New("stuck")
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	for m.hear(t) != "READY=1\nSTATUS=" { // a first tick may come before
	}
	for range 3 {
		<-asked
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := m.hear(t); got != "STOPPING=1" {
		t.Errorf("got %q, want silence until the end", got)
	}
}

func TestNobodyListens(t *testing.T) {
	n := New(Config{Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := send(filepath.Join(t.TempDir(), "none"), "READY=1"); err == nil {
		t.Error("no error of a socket that is not there")
	}
}

func TestFromEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		usec, pid string
		want      time.Duration
		wrong     bool
	}{
		"none":              {},
		"for everybody":     {usec: "30000000", want: 30 * time.Second},
		"for us":            {usec: "1000", pid: strconv.Itoa(os.Getpid()), want: time.Millisecond},
		"for somebody else": {usec: "1000", pid: "1"},
		"no number":         {usec: "soon", wrong: true},
		"negative":          {usec: "-1", wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NOTIFY_SOCKET", "/run/x")
			t.Setenv("WATCHDOG_USEC", c.usec)
			t.Setenv("WATCHDOG_PID", c.pid)
			cfg, err := FromEnvironment()
			if (err != nil) != c.wrong || cfg.Watchdog != c.want || cfg.Socket != "/run/x" {
				t.Errorf("got %+v, %v", cfg, err)
			}
			for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
				if _, there := os.LookupEnv(name); there {
					t.Errorf("%s is left for children", name)
				}
			}
		})
	}
}
