package logind

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast/internal/kubelet/logindtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, m *logindtest.Machine, dir string) *Login {
	t.Helper()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", m.Address())
	l, err := Open(t.Context(), Config{Dir: dir, Name: "ab12"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestWatch holds that the first word is how it is, that every change follows,
// and that the end of the bus is seen.
func TestWatch(t *testing.T) {
	m := logindtest.Start(t)
	m.SetDown(true)
	l := open(t, m, t.TempDir())
	changes, err := l.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, true} {
		if i > 0 {
			m.SetDown(want)
		}
		if got, ok := <-changes; got != want || !ok {
			t.Errorf("change %d: got %v, %v; want %v", i, got, ok, want)
		}
	}
	m.StopBus()
	if _, ok := <-changes; ok {
		t.Error("there was a change after the bus had ended")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseEndsWatch holds that nothing is left, though nobody takes what is sent.
func TestCloseEndsWatch(t *testing.T) {
	l := open(t, logindtest.Start(t), t.TempDir())
	if _, err := l.Watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestInhibit(t *testing.T) {
	m := logindtest.Start(t)
	l := open(t, m, t.TempDir())
	release, err := l.Inhibit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if got := m.Held(); got != 1 {
		t.Errorf("%d inhibitors after Close, want 1", got)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	for m.Held() != 0 { // the test's own deadline ends it
		time.Sleep(10 * time.Millisecond)
	}
	m.Refuse(true)
	l = open(t, m, t.TempDir())
	if _, err := l.Inhibit(t.Context()); err == nil {
		t.Error("no error where logind refuses")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestAllow(t *testing.T) {
	files := func(dir string) (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	tests := []struct {
		name   string
		before []string // files that are there
		wait   time.Duration
		want   []string
		err    error
	}{
		{name: "logind waits longer", wait: 5 * time.Second},
		{name: "it is made to", wait: 1500 * time.Millisecond * 10, want: []string{"99-zz-holdfast-000015-ab12.conf"}},
		{
			name: "in the place of what was asked before", before: []string{"99-zz-holdfast-000007-ab12.conf", "99-kubelet.conf"}, wait: time.Minute,
			want: []string{"99-kubelet.conf", "99-zz-holdfast-000060-ab12.conf"},
		},
		{
			name: "the longer one of two nodes counts", before: []string{"99-zz-holdfast-000007-ff00.conf"}, wait: time.Minute,
			want: []string{"99-zz-holdfast-000007-ff00.conf", "99-zz-holdfast-000060-ab12.conf"},
		},
		{
			name: "somebody else's word is the last", before: []string{"99-zzz.conf"}, wait: time.Minute,
			want: []string{"99-zz-holdfast-000060-ab12.conf", "99-zzz.conf"}, err: errTooShort,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, dir := logindtest.Start(t), t.TempDir()
			for _, name := range tt.before {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("[Login]\nInhibitDelayMaxSec=7\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m.SetWait(5*time.Second, dir)
			l := open(t, m, dir)
			if err := l.Allow(t.Context(), tt.wait); !errors.Is(err, tt.err) {
				t.Errorf("got %v, want %v", err, tt.err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(files(dir), tt.want); diff != "" {
				t.Errorf("files: got -, want +:\n%s", diff)
			}
			if err := Withdraw(Config{Dir: dir, Name: "ab12"}); err != nil {
				t.Error(err)
			}
			for _, name := range files(dir) {
				if name != "99-kubelet.conf" && name != "99-zzz.conf" && name != "99-zz-holdfast-000007-ff00.conf" {
					t.Errorf("%s is left", name)
				}
			}
		})
	}
}

// TestNoBus holds that a machine without a bus is an error, and an ended context
// no hang.
func TestNoBus(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "none"))
	if _, err := Open(t.Context(), Config{Name: "ab12"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that there is none", err)
	}
	m := logindtest.Start(t)
	l := open(t, m, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Watch(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestSilentBus holds that a bus that takes the connection and says nothing is
// given up, in words that say so.
func TestSilentBus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bus")
	silent, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+path)
	_, err = Open(t.Context(), Config{Name: "ab12", Limit: 50 * time.Millisecond})
	const want = "connect to the system's message bus: no answer for 50ms: context deadline exceeded"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
