package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/mounttree"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

// stopPods stops the pods and the private containerd of a node whose parts
// have ended.
func (n *node) stopPods(ctx context.Context, step func(string)) error {
	stop := func(ctx context.Context) error { return n.kubelet.StopPods(ctx, step) }
	if n.kubelet == nil {
		stop = func(context.Context) error { return nil } // the start did not get far
	}
	if n.host == nil {
		return stop(ctx)
	}
	return stopRuntime(ctx, n.in, n.log, step, stop)
}

// stopRuntime stops the pods of a private containerd by stop, and then
// containerd. If containerd has ended, or does not answer, it is started for
// that: pods have a right to their grace.
func stopRuntime(ctx context.Context, in *instance.Instance, log *slog.Logger, step func(string), stop func(context.Context) error) error {
	last, err := loadSaved(in)
	if err != nil {
		return err
	}
	cfg := hostConfig(in, log, step)
	cfg.Handlers = last.RuntimeHandlers // or a containerd that runs would be another's
	var errFind error
	cfg.RuntimeDir, errFind = runtimehost.FindRuntimeDir()
	host := runtimehost.New(cfg)
	left, err := host.Left()
	if err != nil {
		return err
	}
	if left {
		err = errFind
		started := false
		if err == nil {
			started, err = host.Lend(ctx, stop)
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		if !started {
			step(fmt.Sprintf("containerd cannot be started, so that containers are told themselves to end: %v", err))
			err = host.Terminate(ctx, defaultGrace)
		}
	}
	step("stopping containerd")
	return errors.Join(err, host.Stop(ctx))
}

// defaultGrace is how long containers may take to end when nobody can tell how
// long theirs is.
const defaultGrace = 30 * time.Second

// Down stops the pods and the private containerd of an instance that no
// process runs, after a crash perhaps.
func Down(ctx context.Context, in *instance.Instance, step func(string)) error {
	release, err := in.Lock()
	if err != nil {
		return err
	}
	return errors.Join(downLocked(ctx, in, step), release())
}

func downLocked(ctx context.Context, in *instance.Instance, step func(string)) error {
	last, err := loadSaved(in)
	if err != nil {
		return err
	}
	if theirs := last.ContainerRuntimeEndpoint; theirs != "" {
		if !answers(ctx, theirs) {
			step("nobody answers at " + theirs + ": what runs there goes on")
			return nil
		}
		return kubelet.StopAll(ctx, theirs, step) // the runtime is the user's own and goes on
	}
	endpoint := runtimehost.New(hostConfig(in, slog.New(slog.DiscardHandler), nil)).Endpoint()
	return stopRuntime(ctx, in, slog.New(slog.DiscardHandler), step, func(ctx context.Context) error {
		return kubelet.StopAll(ctx, endpoint, step)
	})
}

// answers reports whether somebody listens at a runtime's socket.
func answers(ctx context.Context, endpoint string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(endpoint, "unix://"))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// hostConfig describes the private containerd of an instance. Without a folder
// of programs it can stop and remove, not run.
func hostConfig(in *instance.Instance, log *slog.Logger, progress func(string)) runtimehost.Config {
	return runtimehost.Config{
		RootDir: in.Root, RunDir: in.Run(), InstanceID: in.ID,
		Bridge: in.Bridge(), Subnet: in.Subnet, CgroupParent: in.CgroupParent(),
		Progress: progress, Log: log,
	}
}

// Uninstall removes everything that a node made on this machine, after Down.
// It returns the paths that it kept, and notes on what else it left and why.
func Uninstall(ctx context.Context, in *instance.Instance, step func(string)) (kept, notes []string, err error) {
	last, err := loadSaved(in)
	if err != nil {
		return nil, nil, err
	}
	if theirs := last.ContainerRuntimeEndpoint; theirs != "" && answers(ctx, theirs) {
		step("removing pods from " + theirs)
		if err := kubelet.RemoveAll(ctx, theirs); err != nil {
			return nil, nil, err
		}
	}
	step("removing network, mounts and cgroups")
	notes, err = runtimehost.New(hostConfig(in, slog.New(slog.DiscardHandler), step)).Remove(ctx)
	if err != nil {
		return nil, notes, err
	}
	if err := kubelet.WithdrawShutdown(in.ID); err != nil {
		return nil, notes, fmt.Errorf("take back what logind was told: %w", err)
	}
	step("removing volumes, store, credentials and logs")
	if last.ManifestDir != "" && last.ManifestDir != in.ManifestDir() {
		kept = append(kept, last.ManifestDir)
	}
	replaced, err := filepath.Glob(in.Path("replaced-*"))
	if err != nil {
		return nil, notes, err
	}
	for _, dir := range replaced { // by restores; former manifests stay
		for _, name := range []string{"etcd", "pki", "state", "kubelet", "containerd", "instance.json"} {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				return nil, notes, fmt.Errorf("remove what the node made: %w", err)
			}
		}
	}
	for _, dir := range []string{"kubelet", "logs", "etcd", "pki", "state"} {
		if err := mounttree.Remove(in.Path(dir)); err != nil {
			return nil, notes, fmt.Errorf("remove what the node made: %w", err)
		}
	}
	if err := instance.DefaultRegister.Remove(in); err != nil {
		return nil, notes, err
	}
	// The identity goes last: until then all this can be tried again.
	for _, path := range []string{in.Kubeconfig(), in.Path("up.lock"), in.Path("instance.json")} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, notes, fmt.Errorf("remove what the node made: %w", err)
		}
	}
	more, err := leftovers(in.Root)
	return append(kept, more...), notes, err
}

// leftovers returns what is in the root folder and not the node's, and removes
// folders that are empty.
func leftovers(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var kept []string
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		if e.IsDir() && os.Remove(path) == nil {
			continue // it was empty
		}
		kept = append(kept, path)
	}
	_ = os.Remove(root) // it may hold what is kept
	return kept, nil
}
