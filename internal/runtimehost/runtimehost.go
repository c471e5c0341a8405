// Package runtimehost runs the private containerd of one instance: its
// configuration, its network, its pause and demo images, its life and its
// removal.
//
// Everything it makes lies below the instance's root folder (containerd/, cni/,
// logs/containerd.log) and run folder, or carries the instance's ID, so a
// containerd, Docker or CNI configuration of somebody else is never touched. The
// one exception is libcni's result cache, whose place is fixed; its files carry
// the network's name, which has the ID in it.
//
// containerd outlives this process: pods must go on when the agent is stopped,
// killed or replaced. It leads a session of its own, writes to a file of its
// own, and the next Run adopts it, unless its configuration or its program has
// changed: then it is replaced, and the pods go on under their shims. No file
// says which process it is: its command line and environment do, so nothing can
// be stale after a crash or a reboot.
//
// With a container runtime that the user names instead, none of this runs:
// network, pause and demo images are then that runtime's own.
//
// Run may be called once. Stop and Remove need no Run and must not overlap with
// one; Ready and Endpoint may be called at any time.
package runtimehost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/podnet"
	"github.com/holdfast-dev/holdfast/internal/registries"
)

// Names of the images that Holdfast brings along.
const (
	PauseImage = "holdfast.local/pause:1"
	DemoImage  = "holdfast.local/demo:latest"
)

const (
	firstBackoff = 500 * time.Millisecond
	maxBackoff   = 30 * time.Second
	// steady is how long containerd must have been up for its next death to
	// count as the first.
	steady = time.Minute
	// maxEarlyDeaths is how often containerd may die before it was ever ready:
	// then it will not come up by trying again.
	maxEarlyDeaths = 3
	// readyTimeout is for a first start on a slow disk; a warm one takes 0.3 s.
	readyTimeout = time.Minute
	upkeepPeriod = 30 * time.Second
	// healthPeriod is how often containerd is asked whether it still answers.
	healthPeriod = 10 * time.Second
	// hungLimit is how long containerd may go without an answer before it is
	// killed and started again. A disk that is slow for a while must not do it.
	hungLimit = time.Minute
	// tight is how little room, in bytes, explains that containerd does not
	// come up.
	tight = 1 << 20
)

// A Config says what to run and where. There are no defaults but the two named.
type Config struct {
	// RootDir is the instance's root folder, absolute.
	RootDir string
	// RunDir is the instance's folder below /run, absolute and at most 40
	// bytes: a shim's socket path, 66 bytes longer, must fit into 107.
	RunDir string
	// InstanceID is part of every name outside the two folders: 1 to 12
	// letters, digits and dashes.
	InstanceID string
	// RuntimeDir holds the bundled programs, absolute; see FindRuntimeDir. Stop
	// and Remove do not need it.
	RuntimeDir string
	// Bridge is the name of the pods' bridge, at most 15 bytes.
	Bridge string
	// Subnet holds the pods' addresses, IPv4; see podnet.FreeSubnet.
	Subnet netip.Prefix
	// NodePorts tells which TCP ports of the gateway's address pods may reach.
	// It is called from Run, since they may be known only then. Default: none.
	NodePorts func() []int
	// CgroupParent is the cgroup above all pods ("/holdfast-ID"). Only removal
	// uses it: what is left in it is killed.
	CgroupParent string
	// Handlers are ways to run pods beside the bundled runc. Default: none.
	Handlers []Handler
	// Mirrors and Proxy say how registries are reached. Default: directly, or
	// through the proxy that the environment names.
	Mirrors []registries.Mirror
	Proxy   registries.Proxy
	// Progress is told, in a few words, what takes longer than a moment. It may
	// be called from any goroutine of Run. Default: nobody is told.
	Progress func(string)
	// Down is told what is wrong with containerd whenever that changes; "" when it
	// is well again. It is called from Run alone. Default: nobody is told.
	Down func(problem string)
	// Log is where changes of containerd's state are said.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.Down == nil {
		c.Down = func(string) {}
	}
	if c.NodePorts == nil {
		c.NodePorts = func() []int { return nil }
	}
	return c
}

// validate reports all that is wrong with c.
func (c Config) validate() error {
	var errs []error
	for name, dir := range map[string]string{"root": c.RootDir, "run": c.RunDir} {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || strings.Count(dir, "/") < 2 {
			errs = append(errs, fmt.Errorf("%s folder %q is not an absolute, clean path at least two levels deep", name, dir))
		}
	}
	errs = append(errs, CheckHandlers("handlers", c.Handlers))
	if len(c.RunDir) > 40 {
		errs = append(errs, fmt.Errorf("run folder %q has more than 40 bytes: sockets in it could not be opened", c.RunDir))
	}
	if parent := c.CgroupParent; filepath.Clean("/"+parent) == "/" || strings.Contains(parent, "..") || strings.ContainsAny(parent, `*?[\`) {
		errs = append(errs, fmt.Errorf("cgroup parent %q is not a cgroup of its own", parent))
	}
	return errors.Join(errs...)
}

// A Host runs the private containerd of one instance.
type Host struct {
	cfg   Config
	ready chan struct{} // closed by Run
	// answerTimeout is how long a running containerd may take to answer: at a
	// start it is then replaced, later it is watched for hungLimit.
	answerTimeout time.Duration
	healthPeriod  time.Duration
	hungLimit     time.Duration
	shimPeriod    time.Duration // between two looks for shims that nobody needs
	// stopTimeout is how long containerd may take to end before it is killed; it
	// needs a moment to close its database.
	stopTimeout time.Duration
}

// New returns a Host that does nothing yet.
func New(cfg Config) *Host {
	return &Host{
		cfg:           cfg.withDefaults(),
		ready:         make(chan struct{}),
		answerTimeout: 10 * time.Second,
		healthPeriod:  healthPeriod,
		hungLimit:     hungLimit,
		shimPeriod:    10 * time.Second,
		stopTimeout:   10 * time.Second,
	}
}

// Ready is closed when pods can be created: containerd answers, its network is
// configured, the pause image is there. It stays closed when containerd is
// restarted later.
func (h *Host) Ready() <-chan struct{} { return h.ready }

// Endpoint is the CRI socket's address, known before Run.
func (h *Host) Endpoint() string { return "unix://" + h.cfg.socket() }

// net is the instance's pod network. The marker files lie beside the run folders
// of all instances.
func (h *Host) net() podnet.Net {
	return podnet.Net{
		ID:        h.cfg.InstanceID,
		Bridge:    h.cfg.Bridge,
		Subnet:    h.cfg.Subnet,
		NodePorts: h.cfg.NodePorts(),
		SharedDir: filepath.Join(filepath.Dir(h.cfg.RunDir), "host"),
	}
}

// Run makes the network, adopts or starts containerd, and keeps it running until
// ctx ends, which leaves containerd and the network as they are. The error says
// what keeps containerd from coming up; once it was ready it is restarted for
// ever, with back-off.
func (h *Host) Run(ctx context.Context) error {
	hash, err := h.prepare(ctx)
	if err != nil {
		return ignoreCancel(ctx, fmt.Errorf("container runtime: %w", err))
	}
	backoff := firstBackoff
	for early := 0; ; {
		began := time.Now()
		err := h.attend(ctx, hash)
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-h.ready:
		default:
			if early++; early >= maxEarlyDeaths {
				return fmt.Errorf("container runtime: %w", err)
			}
		}
		if time.Since(began) > steady {
			backoff = firstBackoff
		}
		h.cfg.Log.Warn("the container runtime is down and is started again", "err", err, "wait", backoff)
		h.cfg.Down(strings.ReplaceAll(err.Error(), "\n", " | ") + "; it is started again")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// ignoreCancel returns nil in place of err if ctx has ended: being told to stop
// is no failure.
func ignoreCancel(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// prepare writes the configuration and makes the network. It returns the hash
// that a running containerd must carry to be adopted.
func (h *Host) prepare(ctx context.Context) (hash string, err error) {
	if err := h.cfg.validate(); err != nil {
		return "", err
	}
	if err := h.cfg.checkPrograms(); err != nil {
		return "", err
	}
	h.cfg.warnOfHandlers()
	hash, err = h.cfg.write()
	if err != nil {
		return "", err
	}
	_, err = h.net().Ensure(ctx)
	return hash, err
}

// attend adopts or starts containerd, makes it ready and returns when it has
// died, and why; or when ctx ends.
func (h *Host) attend(ctx context.Context, hash string) (err error) {
	p, err := h.adopt(ctx, hash)
	if err != nil {
		return err
	}
	var was unfinished
	if p == nil {
		if was, err = h.cfg.unfinished(); err != nil { // before it makes others
			h.cfg.Log.Warn("look for networks of pods that nobody knows", "err", err)
		}
		if p, err = h.start(hash); err != nil {
			return fmt.Errorf("start containerd: %w", err)
		}
		h.cfg.Log.Info("the container runtime was started", "pid", p.pid)
	}
	// While containerd lives, watch waits; closing p ends that.
	ctx, died := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = p.wait() // closed: nobody asks any more
		died(errDied)
	}()
	defer func() {
		died(nil)
		err = errors.Join(err, p.close())
		<-watched
	}()

	if err = h.makeReady(ctx, was); err != nil {
		if errors.Is(context.Cause(ctx), errDied) {
			err = errDied
		}
		return fmt.Errorf("%w; the end of %s: %s%s", err, h.cfg.logFile(), complaints(h.cfg.logFile()), h.cfg.noRoom())
	}
	h.cfg.Down("")
	var work sync.WaitGroup
	work.Go(func() { h.upkeep(ctx) })
	work.Go(func() { h.reapShims(ctx) })
	work.Go(func() {
		if err := h.watchHealth(ctx); err != nil {
			died(err)
		}
	})
	work.Wait()
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errHung):
		// Pods go on under their shims.
		return errors.Join(cause, p.kill())
	case errors.Is(cause, errDied):
		return fmt.Errorf("%w (it says why in %s)", errDied, h.cfg.logFile())
	}
	return nil
}

// errDied is returned by attend when containerd has ended, errHung when it runs
// and does not answer.
var (
	errDied = errors.New("containerd has ended")
	errHung = errors.New("containerd does not answer")
)

// makeReady waits until containerd answers, imports our images, and takes back
// what an earlier one had begun.
func (h *Host) makeReady(ctx context.Context, was unfinished) error {
	conn, err := h.connect()
	if err != nil {
		return err
	}
	err = func() error {
		if err := awaitReady(ctx, conn, readyTimeout); err != nil {
			return err
		}
		if err := h.takeBack(ctx, conn, was); err != nil {
			h.cfg.Log.Warn("networks of pods that nobody knows stay until the container runtime starts again", "err", err)
		}
		return h.ensureImages(ctx, conn)
	}()
	if err := errors.Join(err, conn.Close()); err != nil {
		return err
	}
	select {
	case <-h.ready: // not the first time
	default:
		close(h.ready)
	}
	return nil
}

// upkeep repairs what others may take away from a running node, and bounds the
// log, until ctx ends.
func (h *Host) upkeep(ctx context.Context) {
	tick := time.NewTicker(upkeepPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed, err := h.net().Ensure(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			h.cfg.Log.Warn("the pod network is not as it should be", "err", err)
		case changed:
			h.cfg.Log.Warn("the pod network was changed by somebody else and is repaired", "bridge", h.cfg.Bridge)
		}
		if err := boundLog(h.cfg.logFile(), maxLogSize); err != nil {
			h.cfg.Log.Warn("the container runtime's log grows without bound", "err", err)
		}
	}
}

// FindRuntimeDir returns the folder of the bundled programs: where the variable
// HOLDFAST_RUNTIME_DIR says, or runtime/ beside the running program, or
// /usr/libexec/holdfast.
func FindRuntimeDir() (string, error) {
	if dir := os.Getenv("HOLDFAST_RUNTIME_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the bundled container runtime: %w", err)
	}
	candidates := []string{filepath.Join(filepath.Dir(exe), "runtime"), "/usr/libexec/holdfast"}
	for _, dir := range candidates {
		if _, err := os.Stat(filepath.Join(dir, "containerd")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no bundled container runtime in %s: set HOLDFAST_RUNTIME_DIR to its folder, or use a runtime of your own with --container-runtime-endpoint",
		strings.Join(candidates, " or "))
}
