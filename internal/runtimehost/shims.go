package runtimehost

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A shimReaper ends shims that nobody needs: containerd has forgotten them, most
// often because it was killed when it made or removed a sandbox, and they would
// wait for it for ever.
type shimReaper struct {
	cfg      Config
	suspects map[int]string // by process ID: the sandbox of those that looked so the last time
}

// reapShims ends shims that nobody needs, until ctx ends.
func (h *Host) reapShims(ctx context.Context) {
	tick := time.NewTicker(h.shimPeriod)
	defer tick.Stop()
	shims := shimReaper{cfg: h.cfg}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ended, err := shims.look()
		if err != nil {
			h.cfg.Log.Warn("shims that the container runtime has forgotten stay for now", "err", err)
		}
		for _, sandbox := range ended {
			h.cfg.Log.Info("ended a shim that the container runtime has forgotten", "object", sandbox)
		}
	}
}

// look ends the shims that looked useless the last time, too: one that starts or
// ends may look so for a moment. It returns the sandboxes of those it ended.
func (r *shimReaper) look() (ended []string, err error) {
	shims, err := r.cfg.findShims()
	if err != nil {
		return nil, err
	}
	was := r.suspects
	r.suspects = map[int]string{}
	var errs []error
	for _, p := range shims {
		id, useless, err := r.useless(p.pid)
		switch {
		case err != nil || !useless:
			errs = append(errs, err)
		case was[p.pid] != id:
			r.suspects[p.pid] = id
		default:
			ended = append(ended, id)
			errs = append(errs, p.signal(syscall.SIGKILL))
			reap(p.pid)
		}
		errs = append(errs, p.close())
	}
	return ended, errors.Join(errs...)
}

// useless reports whether a shim has no container, and no folder by which
// containerd could find it. A sandbox whose pause process was killed has no
// folder either, but its containers still run below the shim.
func (r *shimReaper) useless(pid int) (sandbox string, useless bool, err error) {
	cmdline, err := os.ReadFile(procPath(pid, "cmdline"))
	if err != nil {
		return "", false, nil //nolint:nilerr // it has ended
	}
	argv := strings.Split(string(cmdline), "\x00")
	id, namespace := flagOf(argv, "-id"), flagOf(argv, "-namespace")
	if id == "" || namespace == "" {
		return "", false, nil
	}
	bundle := filepath.Join(r.cfg.RunDir, "containerd", "io.containerd.runtime.v2.task", namespace, id)
	if _, err := os.Stat(bundle); !errors.Is(err, fs.ErrNotExist) {
		return id, false, err
	}
	below, err := childrenOf(pid)
	return id, len(below) == 0, err
}

// flagOf returns the word behind name, or "".
func flagOf(argv []string, name string) string {
	if i := slices.Index(argv, name); i >= 0 && i+1 < len(argv) {
		return argv[i+1]
	}
	return ""
}
