// Package logindtest is systemd-logind as tests need it: a message bus of its own
// with a service that answers as logind does, and goes down when it is told to.
package logindtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

const (
	login1  = "org.freedesktop.login1"
	manager = login1 + ".Manager"
	object  = dbus.ObjectPath("/org/freedesktop/login1")
	systemd = "org.freedesktop.systemd1"
)

// A Machine is a bus with a logind on it. Its methods may be called from any
// goroutine.
type Machine struct {
	t      testing.TB
	config string // of the bus

	mu    sync.Mutex // guards the fields below
	bus   *exec.Cmd
	conn  *dbus.Conn
	down  bool
	wait  time.Duration // InhibitDelayMaxUSec
	conf  string        // folder from which a reload takes the wait
	locks []*lock
	fail  bool // Inhibit refuses
}

// A lock is one inhibitor.
type lock struct {
	released chan struct{} // closed when nobody has it open any more
}

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_type="method_call"/><allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/><allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/><allow receive_type="method_return"/><allow receive_type="error"/><allow receive_type="signal"/>
  </policy>
</busconfig>
`

// Start starts a machine whose logind waits a minute for who inhibits. It needs
// dbus-daemon.
func Start(t testing.TB) *Machine {
	t.Helper()
	testenv.Need(t, "dbus-daemon")
	dir, err := os.MkdirTemp("", "bus-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	m := &Machine{t: t, config: filepath.Join(dir, "bus.conf"), wait: time.Minute}
	t.Cleanup(func() {
		m.StopBus()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(m.config, fmt.Appendf(nil, busConfig, m.socket()), 0o600); err != nil {
		t.Fatal(err)
	}
	m.StartBus()
	return m
}

func (m *Machine) socket() string { return filepath.Join(filepath.Dir(m.config), "socket") }

// Address is what DBUS_SYSTEM_BUS_ADDRESS is to be.
func (m *Machine) Address() string { return "unix:path=" + m.socket() }

// StartBus starts the bus, and logind on it, after StopBus.
func (m *Machine) StartBus() {
	m.t.Helper()
	bus := exec.CommandContext(m.t.Context(), "dbus-daemon", "--config-file="+m.config, "--nofork", "--nopidfile", "--print-address")
	bus.Stderr = os.Stderr
	out, err := bus.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := bus.Start(); err != nil {
		m.t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		m.t.Fatalf("dbus-daemon: %v", err)
	}
	conn, err := dbus.Connect(m.Address())
	if err != nil {
		m.t.Fatal(err)
	}
	for _, export := range []struct {
		object any
		iface  string
		path   dbus.ObjectPath
	}{{logind{m}, manager, object}, {properties{m}, "org.freedesktop.DBus.Properties", object}, {units{m}, systemd + ".Manager", "/org/freedesktop/systemd1"}} {
		if err := conn.Export(export.object, export.path, export.iface); err != nil {
			m.t.Fatal(err)
		}
	}
	m.mu.Lock()
	m.bus, m.conn = bus, conn
	m.mu.Unlock()
	for _, name := range []string{systemd, login1} {
		if _, err := conn.RequestName(name, dbus.NameFlagDoNotQueue); err != nil {
			m.t.Fatal(err)
		}
	}
}

// StopBus kills the bus. Inhibitors stay.
func (m *Machine) StopBus() {
	m.mu.Lock()
	bus, conn := m.bus, m.conn
	m.bus, m.conn = nil, nil
	m.mu.Unlock()
	if bus == nil {
		return
	}
	_ = conn.Close()
	_ = bus.Process.Kill()
	_ = bus.Wait()
}

// SetDown says that the machine is about to go down, or that it does not.
func (m *Machine) SetDown(down bool) {
	m.t.Helper()
	m.mu.Lock()
	m.down = down
	conn := m.conn
	m.mu.Unlock()
	if conn == nil {
		return
	}
	if err := conn.Emit(object, manager+".PrepareForShutdown", down); err != nil {
		m.t.Error(err)
	}
}

// SetWait says for how long logind waits, and from which folder it takes another
// wait when it is told to reload. Empty: from none.
func (m *Machine) SetWait(wait time.Duration, conf string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wait, m.conf = wait, conf
}

// Refuse has logind refuse inhibitors.
func (m *Machine) Refuse(refuse bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = refuse
}

// Held returns how many inhibitors there are.
func (m *Machine) Held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, l := range m.locks {
		select {
		case <-l.released:
		default:
			n++
		}
	}
	return n
}

// logind has the methods of org.freedesktop.login1.Manager.
type logind struct{ m *Machine }

// Inhibit returns one end of a pipe: it is let go when nobody has it open.
func (l logind) Inhibit(what, _, _, mode string) (dbus.UnixFD, *dbus.Error) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if what != "shutdown" || mode != "delay" || l.m.fail {
		return 0, dbus.MakeFailedError(fmt.Errorf("inhibit %s in mode %s", what, mode))
	}
	if l.m.down {
		return 0, dbus.NewError(login1+".OperationInProgress", []any{"the machine goes down"})
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	r := os.NewFile(uintptr(ends[0]), "lock")
	k := &lock{released: make(chan struct{})}
	l.m.locks = append(l.m.locks, k)
	go func() {
		_, _ = io.Copy(io.Discard, r)
		_ = r.Close()
		close(k.released)
	}()
	// The library sends a copy; ours is closed once it must have.
	time.AfterFunc(sendTime, func() { _ = unix.Close(ends[1]) })
	return dbus.UnixFD(ends[1]), nil
}

// sendTime is more than an answer needs to leave this process.
const sendTime = 500 * time.Millisecond

// properties has org.freedesktop.DBus.Properties of logind.
type properties struct{ m *Machine }

// Get returns one property.
func (p properties) Get(_, name string) (dbus.Variant, *dbus.Error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	switch name {
	case "PreparingForShutdown":
		return dbus.MakeVariant(p.m.down), nil
	case "InhibitDelayMaxUSec":
		return dbus.MakeVariant(uint64(p.m.wait / time.Microsecond)), nil
	}
	return dbus.Variant{}, dbus.MakeFailedError(fmt.Errorf("no property %s", name))
}

// units has the methods of org.freedesktop.systemd1.Manager.
type units struct{ m *Machine }

// KillUnit reloads logind, as it does on SIGHUP.
func (u units) KillUnit(unit, _ string, signal int32) *dbus.Error {
	if unit != "systemd-logind.service" || signal != 1 {
		return dbus.MakeFailedError(fmt.Errorf("kill %s with %d", unit, signal))
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if u.m.conf == "" {
		return nil
	}
	paths, err := filepath.Glob(filepath.Join(u.m.conf, "*.conf")) // in order of names, the last one counts
	if err != nil {
		return dbus.MakeFailedError(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return dbus.MakeFailedError(err)
		}
		_, value, _ := strings.Cut(string(text), "InhibitDelayMaxSec=")
		var seconds int64
		if _, err := fmt.Sscan(value, &seconds); err != nil {
			return dbus.MakeFailedError(err)
		}
		u.m.wait = time.Duration(seconds) * time.Second
	}
	return nil
}
