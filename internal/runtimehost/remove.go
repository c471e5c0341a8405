package runtimehost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/mounttree"
)

// cniCache is where libcni keeps what it answered, one file for each pod and
// network. The place is fixed.
const cniCache = "/var/lib/cni/results"

// killTimeout is how long killed processes may take to be gone, which is the
// kernel's work alone.
const killTimeout = 10 * time.Second

// Stop ends containerd and what is left of its shims and containers. Whoever
// wants pods to end in order stops them first. Nothing running is no error.
func (h *Host) Stop(ctx context.Context) error {
	if err := h.cfg.validate(); err != nil {
		return fmt.Errorf("stop the container runtime: %w", err)
	}
	// containerd goes first: it would see the shims die and clean up behind them
	// while we do.
	var errs []error
	running, err := h.cfg.findContainerd()
	errs = append(errs, err)
	for _, p := range running {
		h.cfg.Progress("stopping the container runtime")
		errs = append(errs, p.stop(ctx, h.stopTimeout))
		h.cfg.Log.Info("the container runtime was stopped", "pid", p.pid)
	}
	errs = append(errs, h.killLeft(ctx))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop the container runtime: %w", err)
	}
	return nil
}

// Lend runs containerd for as long as use needs it: to stop pods in order, say.
// A running one is adopted, one that hangs is replaced. started is false where
// containerd could not be had, which err says.
func (h *Host) Lend(ctx context.Context, use func(context.Context) error) (started bool, err error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1) // 1: it never waits for us
	go func() { ended <- h.Run(running) }()
	select {
	case <-h.Ready():
		err = use(ctx)
		stop()
		return true, errors.Join(err, <-ended)
	case err = <-ended:
		return false, err
	}
}

// Terminate asks the processes of all containers to end, and returns when they
// have, or after grace.
func (h *Host) Terminate(ctx context.Context, grace time.Duration) error {
	if err := h.cfg.validate(); err != nil {
		return fmt.Errorf("stop containers: %w", err)
	}
	limit := time.After(grace)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	told := map[int]bool{}
	for {
		pids, err := cgroupProcesses(h.cfg.cgroups())
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if !told[pid] {
				told[pid] = true
				_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			return nil // whoever asks kills them next
		case <-tick.C:
		}
	}
}

// Left reports whether containerd, a shim or a container of the instance runs.
func (h *Host) Left() (bool, error) {
	if err := h.cfg.validate(); err != nil {
		return false, err
	}
	containerd, err1 := h.cfg.findContainerd()
	shims, err2 := h.cfg.findShims()
	errs := []error{err1, err2}
	for _, p := range slices.Concat(containerd, shims) {
		errs = append(errs, p.close())
	}
	inside, err := cgroupProcesses(h.cfg.cgroups())
	return len(containerd)+len(shims)+len(inside) > 0, errors.Join(append(errs, err)...)
}

// killLeft kills the processes in the instance's cgroups, the shims and their
// children, until there are none.
func (h *Host) killLeft(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, killTimeout, fmt.Errorf("still there %s after SIGKILL", killTimeout))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := h.killOnce()
		if len(left) == 0 || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes %v: %w", left, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// killOnce sends SIGKILL to what is left and returns its process IDs. Containers
// go before their shims: without the shim nobody would know whose they were.
func (h *Host) killOnce() (left []int, err error) {
	shims, err := h.cfg.findShims()
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, p := range shims {
			err = errors.Join(err, p.close())
		}
	}()
	containers, err := cgroupProcesses(h.cfg.cgroups())
	if err != nil {
		return nil, err
	}
	for _, p := range shims {
		below, err := childrenOf(p.pid)
		if err != nil {
			return nil, err
		}
		containers = append(containers, below...)
	}
	var errs []error
	for _, pid := range containers {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("kill %d: %w", pid, err))
		}
	}
	if len(containers) > 0 {
		return containers, errors.Join(errs...)
	}
	for _, p := range shims {
		errs = append(errs, p.signal(syscall.SIGKILL))
		reap(p.pid)
		left = append(left, p.pid)
	}
	return left, errors.Join(errs...)
}

// childrenOf returns the direct children of pid that have not ended.
func childrenOf(pid int) ([]int, error) {
	pids, err := allPIDs()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pids, func(p int) bool {
		stat, err := os.ReadFile(procPath(p, "stat"))
		if err != nil {
			return true
		}
		state, parent, ok := parseStat(string(stat))
		return !ok || parent != pid || state == "Z"
	}), nil
}

// parseStat reads state and parent from a process' stat file (proc(5)). The
// command before them may hold spaces and parentheses.
func parseStat(stat string) (state string, parent int, ok bool) {
	_, rest, found := cutLast(stat, ")")
	fields := strings.Fields(rest)
	if !found || len(fields) < 2 {
		return "", 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Remove stops what runs and takes away all that Run and containerd made: the
// instance's cgroups, mounts, network and folders. It goes on after an error,
// returns all of them, and may be called again. notes say what was left on
// purpose and why.
func (h *Host) Remove(ctx context.Context) (notes []string, err error) {
	if err := h.cfg.validate(); err != nil {
		return nil, fmt.Errorf("remove the container runtime: %w", err)
	}
	errs := []error{h.Stop(ctx)}
	for _, dir := range h.cfg.cgroups() {
		errs = append(errs, removeCgroup(dir))
	}
	notes, err = h.net().Remove(ctx)
	errs = append(errs, err, h.cfg.removeCNICache())
	for _, dir := range []string{h.cfg.containerdDir(), h.cfg.cniDir(), h.cfg.RunDir} {
		errs = append(errs, mounttree.Remove(dir))
	}
	for _, path := range []string{h.cfg.logFile(), h.cfg.logFile() + ".1"} {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	removeIfEmpty(filepath.Dir(h.cfg.logFile()))
	removeIfEmpty(filepath.Dir(h.cfg.RunDir)) // shared by all instances
	if err := errors.Join(errs...); err != nil {
		return notes, fmt.Errorf("remove the container runtime: %w", err)
	}
	return notes, nil
}

// cgroups returns the instance's cgroup in v2's hierarchy, or in every v1 and
// hybrid one.
func (c Config) cgroups() []string {
	const root = "/sys/fs/cgroup"
	pattern := filepath.Join(root, "*", c.CgroupParent)
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		pattern = filepath.Join(root, c.CgroupParent)
	}
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil // a bad pattern, which validate refuses
	}
	return found
}

// cgroupProcesses returns the processes in the cgroups dirs and all below.
func cgroupProcesses(dirs []string) ([]int, error) {
	seen := map[int]bool{}
	var pids []int
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && d.Name() != "cgroup.procs" {
				return nil // gone, or not what we read
			}
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
				return nil // gone, or a threaded cgroup, whose parent lists them
			}
			if err != nil {
				return err
			}
			for word := range strings.FieldsSeq(string(data)) {
				pid, err := strconv.Atoi(word)
				if err == nil && pid > 0 && pid != os.Getpid() && !seen[pid] {
					seen[pid] = true
					pids = append(pids, pid)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return pids, nil
}

// removeCgroup removes dir and the cgroups below it, deepest first. It removes
// only folders: the files in them are the kernel's.
func removeCgroup(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	errs := []error{err}
	for _, path := range slices.Backward(dirs) {
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove cgroup %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// removeCNICache removes libcni's files of our network, and the folders if that
// leaves them empty.
func (c Config) removeCNICache() error {
	entries, err := os.ReadDir(cniCache)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), c.network()+"-") {
			errs = append(errs, os.Remove(filepath.Join(cniCache, e.Name())))
		}
	}
	removeIfEmpty(cniCache)
	removeIfEmpty(filepath.Dir(cniCache))
	return errors.Join(errs...)
}

// removeIfEmpty removes a folder; one that is not empty, or not there, stays as
// it is.
func removeIfEmpty(dir string) { _ = unix.Rmdir(dir) }
