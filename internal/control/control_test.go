package control

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

func TestNotRunning(t *testing.T) {
	stale := filepath.Join(t.TempDir(), "stale.sock")
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	dying := filepath.Join(t.TempDir(), "dying.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", dying)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // takes what is asked and ends
		if conn, err := l.Accept(); err == nil {
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	for name, test := range map[string]struct {
		path string
		want bool
	}{
		"killed while it is asked": {dying, true},
		"no socket":                {filepath.Join(t.TempDir(), "none.sock"), true},
		"left by a killed node":    {stale, true},
		"cannot be asked":          {filepath.Join(t.TempDir(), strings.Repeat("x", 200)), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewClient(test.path).Report(t.Context())
			if got := errors.Is(err, ErrNotRunning); err == nil || got != test.want {
				t.Errorf("got %v; not running: %v, want %v", err, got, test.want)
			}
		})
	}
}
