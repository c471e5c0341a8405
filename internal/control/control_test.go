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
	for name, test := range map[string]struct {
		path string
		want bool
	}{
		"no socket":             {filepath.Join(t.TempDir(), "none.sock"), true},
		"left by a killed node": {stale, true},
		"cannot be asked":       {filepath.Join(t.TempDir(), strings.Repeat("x", 200)), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewClient(test.path).Report(t.Context())
			if got := errors.Is(err, ErrNotRunning); err == nil || got != test.want {
				t.Errorf("got %v; not running: %v, want %v", err, got, test.want)
			}
		})
	}
}
