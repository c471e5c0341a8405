// Package servicemanager tells the service manager that started this process,
// such as systemd, how the node is: that it is ready, that it lives, and that
// it stops (sd_notify(3)). A process that was started by hand tells nobody.
package servicemanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// A Config says what is told, and when.
type Config struct {
	// Socket is where the manager listens: a path, or a name in the abstract
	// namespace that begins with "@". Empty: there is none.
	Socket string
	// Watchdog is how long the manager waits for a sign of life before it ends
	// the process. 0: it does not watch.
	Watchdog time.Duration
	// Ready is closed when the node is ready. Required.
	Ready <-chan struct{}
	// Healthy is asked before each sign of life, with half of Watchdog as its
	// deadline; an error withholds it. Required.
	Healthy func(ctx context.Context) error
	// Status is a line about the node for people. Required.
	Status func(ctx context.Context) string
	// Log is told what withholds a sign of life. Required.
	Log *slog.Logger
}

// FromEnvironment returns what the manager has put into the environment
// (sd_notify(3), sd_watchdog_enabled(3)), and takes it from there, so that no
// child takes it for its own.
func FromEnvironment() (cfg Config, err error) {
	cfg.Socket = os.Getenv("NOTIFY_SOCKET")
	usec, pid := os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if err := os.Unsetenv(name); err != nil {
			return cfg, err
		}
	}
	if usec == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return cfg, nil
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 {
		return cfg, fmt.Errorf("WATCHDOG_USEC=%q is no number of microseconds", usec)
	}
	cfg.Watchdog = time.Duration(n) * time.Microsecond
	return cfg, nil
}

// A Notifier tells one manager about one node.
type Notifier struct {
	cfg Config
}

// New returns a Notifier that tells nothing yet.
func New(cfg Config) *Notifier { return &Notifier{cfg} }

// Run tells the manager about the node until ctx is done, and then that it
// stops. A manager that does not hear is logged, and is no error: the node is
// not worse for it.
func (n *Notifier) Run(ctx context.Context) error {
	if n.cfg.Socket == "" {
		<-ctx.Done()
		return nil
	}
	var live <-chan time.Time
	if n.cfg.Watchdog > 0 {
		tick := time.NewTicker(n.cfg.Watchdog / 2)
		defer tick.Stop()
		live = tick.C
	}
	for ready := n.cfg.Ready; ; {
		select {
		case <-ready:
			ready = nil
			n.tell("READY=1", "STATUS="+n.cfg.Status(ctx))
		case <-live:
			n.signOfLife(ctx, ready == nil)
		case <-ctx.Done():
			n.tell("STOPPING=1")
			return nil
		}
	}
}

// signOfLife pings the watchdog, unless the node is ready and not well: while
// it starts, waiting is all that it does, and the manager's patience for a
// start is another matter.
func (n *Notifier) signOfLife(ctx context.Context, ready bool) {
	limited, cancel := context.WithTimeout(ctx, n.cfg.Watchdog/2)
	defer cancel()
	if ready {
		if err := n.cfg.Healthy(limited); err != nil {
			n.cfg.Log.Error("the service manager is given no sign of life", "err", err)
			return
		}
	}
	n.tell("WATCHDOG=1", "STATUS="+n.cfg.Status(limited))
}

func (n *Notifier) tell(words ...string) {
	if err := send(n.cfg.Socket, strings.Join(words, "\n")); err != nil {
		n.cfg.Log.Warn("the service manager does not hear", "err", err)
	}
}

// send sends one datagram. The kernel says at once whether it can be taken.
func send(socket, text string) (err error) {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	_, err = conn.Write([]byte(text))
	return err
}
