// Package logind asks systemd-logind, over D-Bus, when the machine goes down, and
// holds that back (https://systemd.io/INHIBITOR_LOCKS).
//
// It reads and writes org.freedesktop.login1.Manager, has systemd reload logind,
// and writes one file of logind's configuration, if logind would not wait for as
// long as is asked. Calls of one connection come one after the other; each ends
// with its context.
package logind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

const (
	service = "org.freedesktop.login1"
	object  = dbus.ObjectPath("/org/freedesktop/login1")
	manager = service + ".Manager"

	prepare = "PrepareForShutdown" // the signal; its one argument is whether, or whether not
)

// A Config says how logind's configuration is changed where that is needed.
type Config struct {
	Dir  string // of files that add to logind's configuration; default /etc/systemd/logind.conf.d
	Name string // in the file's name and the list of inhibitors; what else has this name is ours

	Limit time.Duration // of one call, and of the connection; default 10 s
}

func (c Config) withDefaults() Config {
	c.Dir = cmp.Or(c.Dir, DefaultDir)
	c.Limit = cmp.Or(c.Limit, 10*time.Second)
	return c
}

// DefaultDir is where logind reads what adds to its configuration.
const DefaultDir = "/etc/systemd/logind.conf.d"

// A Login is a connection to logind.
type Login struct {
	cfg  Config
	conn *dbus.Conn

	cancel context.CancelFunc // of conn
	closed chan struct{}
	wg     sync.WaitGroup // those that Watch started
}

// Open connects to the system's bus, which is where the environment variable
// DBUS_SYSTEM_BUS_ADDRESS says, or else in its usual place.
func Open(ctx context.Context, cfg Config) (*Login, error) {
	cfg = cfg.withDefaults()
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(cfg.Limit, cancel)
	// One handler for all signals keeps their order.
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(ctx), dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if !late.Stop() { // what the library says then is about its socket
		err = fmt.Errorf("no answer for %v: %w", cfg.Limit, context.DeadlineExceeded)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("connect to the system's message bus: %w", err)
	}
	return &Login{cfg: cfg, conn: conn, cancel: cancel, closed: make(chan struct{})}, nil
}

// Close ends the connection. Inhibitors stay.
func (l *Login) Close() error {
	close(l.closed)
	err := l.conn.Close()
	l.cancel()
	l.wg.Wait()
	return err
}

// call calls a method of an object and stores what it answers.
func (l *Login) call(ctx context.Context, at dbus.BusObject, method string, answer []any, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Limit)
	defer cancel()
	return at.CallWithContext(ctx, method, 0, args...).Store(answer...)
}

func (l *Login) object() dbus.BusObject { return l.conn.Object(service, object) }

// Watch sends whether the machine goes down, first as it is, then at each
// change, until the connection ends; then it closes the channel.
func (l *Login) Watch(ctx context.Context) (<-chan bool, error) {
	// The signals first, so that none is missed between the two.
	signals := make(chan *dbus.Signal, 16)
	l.conn.Signal(signals)
	err := l.conn.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(object), dbus.WithMatchInterface(manager), dbus.WithMatchMember(prepare))
	if err != nil {
		return nil, fmt.Errorf("watch logind: %w", err)
	}
	var down bool
	if err := l.property(ctx, "PreparingForShutdown", &down); err != nil {
		return nil, err
	}
	changes := make(chan bool)
	l.wg.Go(func() {
		defer close(changes)
		for {
			select {
			case <-l.closed:
				return
			case changes <- down:
			}
			var ok bool
			if down, ok = next(signals); !ok {
				return
			}
		}
	})
	return changes, nil
}

// next returns what the next signal of the right kind says, or false if there
// are no more. The library closes the channel with the connection.
func next(signals <-chan *dbus.Signal) (down, ok bool) {
	for s := range signals {
		if s.Path != object || s.Name != manager+"."+prepare || len(s.Body) != 1 {
			continue
		}
		if down, ok := s.Body[0].(bool); ok {
			return down, true
		}
	}
	return false, false
}

// Inhibit has logind wait, for as long as it waits at all, until release is
// called or this process ends.
func (l *Login) Inhibit(ctx context.Context) (release func() error, err error) {
	var fd dbus.UnixFD
	err = l.call(ctx, l.object(), manager+".Inhibit", []any{&fd}, "shutdown", "holdfast", "Pods end in order ("+l.cfg.Name+")", "delay")
	if err != nil {
		return nil, fmt.Errorf("have logind wait for the pods: %w", err)
	}
	unix.CloseOnExec(int(fd))
	return os.NewFile(uintptr(fd), "inhibitor").Close, nil
}

// property reads one property of logind.
func (l *Login) property(ctx context.Context, name string, value any) error {
	var v dbus.Variant
	if err := l.call(ctx, l.object(), "org.freedesktop.DBus.Properties.Get", []any{&v}, manager, name); err != nil {
		return fmt.Errorf("ask logind for %s: %w", name, err)
	}
	return v.Store(value)
}

// wait returns how long logind waits for who inhibits.
func (l *Login) wait(ctx context.Context) (time.Duration, error) {
	var usec uint64
	err := l.property(ctx, "InhibitDelayMaxUSec", &usec)
	return time.Duration(usec) * time.Microsecond, err
}

// reload has logind read its configuration again. Only a signal does it in every
// version of logind.
func (l *Login) reload(ctx context.Context) error {
	systemd := l.conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	err := l.call(ctx, systemd, "org.freedesktop.systemd1.Manager.KillUnit", nil, "systemd-logind.service", "all", int32(unix.SIGHUP))
	if err != nil {
		return fmt.Errorf("have logind read its configuration again: %w", err)
	}
	return nil
}

// errTooShort is returned when logind does not wait for as long as is asked, and
// cannot be made to.
var errTooShort = errors.New("logind does not wait long enough for them")
