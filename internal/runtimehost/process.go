package runtimehost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hashVariable marks containerd with the configuration it was started with.
const hashVariable = "HOLDFAST_CONTAINERD_HASH"

// A process is held by a pidfd, so that it cannot be mistaken for a later one of
// the same number. It need not be our child.
type process struct {
	pid int
	fd  *os.File
}

// hold returns the process of the given number as it is now.
func hold(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	return &process{pid, os.NewFile(uintptr(fd), "pidfd")}, nil
}

func (p *process) close() error { return p.fd.Close() }

// wait returns nil when the process has ended, and an error when p is closed
// before.
func (p *process) wait() error {
	rc, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	err = rc.Read(func(fd uintptr) bool {
		// A pidfd is readable once its process has ended.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	if err == nil {
		reap(p.pid)
	}
	return err
}

// reap collects pid if it is a child of ours; init does so for any other.
func reap(pid int) {
	_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
}

func (p *process) signal(sig syscall.Signal) error {
	err := pidfdSignal(p.fd, sig)
	if errors.Is(err, unix.ESRCH) {
		return nil // it has ended
	}
	return err
}

func pidfdSignal(fd *os.File, sig syscall.Signal) error {
	rc, err := fd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = rc.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	return errors.Join(err, sent)
}

// stop ends the process: SIGTERM, and SIGKILL if it is still there after
// timeout or when ctx ends. p is closed.
func (p *process) stop(ctx context.Context, timeout time.Duration) error {
	ended := make(chan error, 1) // 1: the waiter never waits for us
	go func() { ended <- p.wait() }()
	if err := p.signal(syscall.SIGTERM); err != nil {
		return errors.Join(err, p.close(), <-ended)
	}
	select {
	case err := <-ended:
		return errors.Join(err, p.close())
	case <-time.After(timeout):
	case <-ctx.Done():
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return errors.Join(err, p.close(), <-ended)
	}
	select {
	case err := <-ended:
		return errors.Join(err, p.close())
	case <-time.After(killTimeout): // it waits for a disk, perhaps for ever
		err := fmt.Errorf("process %d is still there %s after SIGKILL", p.pid, killTimeout)
		err = errors.Join(err, p.close())
		if waited := <-ended; !errors.Is(waited, os.ErrClosed) { // the closing ends the wait
			err = errors.Join(err, waited)
		}
		return err
	}
}

// kill ends a process that hangs. Somebody else waits for its end.
func (p *process) kill() error { return p.signal(syscall.SIGKILL) }

// adopt returns the running containerd of this instance if it can be kept, and
// nil if there is none; any other is stopped.
func (h *Host) adopt(ctx context.Context, hash string) (*process, error) {
	found, err := h.cfg.findContainerd()
	if err != nil {
		return nil, err
	}
	var keep *process
	for _, p := range found {
		why := h.unfit(ctx, p, hash)
		if why == "" && keep == nil {
			keep = p
			continue
		}
		h.cfg.Log.Info("a running container runtime is replaced", "pid", p.pid, "reason", why)
		h.cfg.Progress("stopping the old container runtime")
		if err := p.stop(ctx, h.stopTimeout); err != nil {
			return nil, fmt.Errorf("stop the old containerd: %w", err)
		}
	}
	if keep != nil {
		h.cfg.Log.Info("the running container runtime is adopted", "pid", keep.pid)
	}
	return keep, nil
}

// unfit says why the containerd p cannot be kept, or nothing.
func (h *Host) unfit(ctx context.Context, p *process, hash string) string {
	environ, err := os.ReadFile(procPath(p.pid, "environ"))
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(strings.Split(string(environ), "\x00"), hashVariable+"="+hash) {
		return "its configuration or its program has changed"
	}
	conn, err := h.connect()
	if err != nil {
		return err.Error()
	}
	err = awaitReady(ctx, conn, h.answerTimeout)
	if err := errors.Join(err, conn.Close()); err != nil {
		return "it does not answer: " + err.Error()
	}
	return ""
}

// start starts containerd. It is no child to wait for: it leads a session of its
// own and stays when we go.
func (h *Host) start(hash string) (*process, error) {
	h.cfg.Progress("starting the container runtime")
	if err := boundLog(h.cfg.logFile(), maxLogSize); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(h.cfg.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	program := h.cfg.program("containerd")
	started, err := os.StartProcess(program, []string{program, "--config", h.cfg.configFile()}, &os.ProcAttr{
		Dir:   "/",
		Env:   append(h.cfg.environ(os.Environ()), hashVariable+"="+hash),
		Files: []*os.File{null, log, log},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, err
	}
	p, err := hold(started.Pid)
	return p, errors.Join(err, started.Release())
}

// environ returns containerd's environment: ours, with the proxies that it is to use,
// without what tells a service manager about us, and with the folders where the
// CNI plugins find iptables.
func (c Config) environ(ours []string) []string {
	ours = c.Proxy.Environ(ours)
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	var env []string
	for _, entry := range ours {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", hashVariable:
		case "PATH":
			path = value + ":" + path
		default:
			env = append(env, entry)
		}
	}
	return append(env, "PATH="+c.RuntimeDir+":"+path)
}

// findContainerd returns the running containerds of this instance: those that
// were started with its configuration file. There are two only after two agents
// raced.
func (c Config) findContainerd() ([]*process, error) {
	return find(func(argv []string) bool {
		return filepath.Base(argv[0]) == "containerd" && hasFlag(argv, "--config", c.configFile())
	})
}

// findShims returns the running shims of this instance, which name its socket.
func (c Config) findShims() ([]*process, error) {
	return find(func(argv []string) bool {
		return strings.HasPrefix(filepath.Base(argv[0]), "containerd-shim") && hasFlag(argv, "-address", c.socket())
	})
}

// hasFlag reports whether argv has the two words name and value in a row.
func hasFlag(argv []string, name, value string) bool { return flagOf(argv, name) == value }

// find returns the processes of our PID namespace whose arguments match. A
// container may run a Holdfast of its own with the same folders.
func find(match func(argv []string) bool) ([]*process, error) {
	pids, err := allPIDs()
	if err != nil {
		return nil, err
	}
	var found []*process
	for _, pid := range pids {
		if !matches(pid, match) {
			continue
		}
		p, err := hold(pid)
		if err != nil {
			continue // ended
		}
		if !matches(pid, match) { // it was another by the time we held it
			_ = p.close()
			continue
		}
		found = append(found, p)
	}
	return found, nil
}

func matches(pid int, match func(argv []string) bool) bool {
	data, err := os.ReadFile(procPath(pid, "cmdline"))
	if err != nil || len(data) == 0 { // ended, or a zombie
		return false
	}
	return match(strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")) && sameNamespace(pid)
}

func sameNamespace(pid int) bool {
	ours, err1 := os.Readlink("/proc/self/ns/pid")
	theirs, err2 := os.Readlink(procPath(pid, "ns/pid"))
	return err1 == nil && err2 == nil && ours == theirs
}

func allPIDs() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := proc.Readdirnames(-1)
	if err := errors.Join(err, proc.Close()); err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func procPath(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }
