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
	var errs []error
	if n.kubelet != nil {
		errs = append(errs, n.kubelet.StopPods(ctx, step))
	}
	if n.host != nil {
		step("stopping containerd")
		errs = append(errs, n.host.Stop(ctx))
	}
	return errors.Join(errs...)
}

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
	host := runtimehost.New(hostConfig(in, slog.New(slog.DiscardHandler), step))
	endpoint := last.ContainerRuntimeEndpoint
	if endpoint == "" {
		endpoint = host.Endpoint()
	}
	if answers(ctx, endpoint) {
		if err := kubelet.StopAll(ctx, endpoint, step); err != nil {
			return err
		}
	}
	if last.ContainerRuntimeEndpoint != "" {
		return nil // the user's own: it goes on
	}
	step("stopping containerd")
	return host.Stop(ctx)
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
	step("removing network, mounts and cgroups")
	notes, err = runtimehost.New(hostConfig(in, slog.New(slog.DiscardHandler), step)).Remove(ctx)
	if err != nil {
		return nil, notes, err
	}
	step("removing volumes, store, credentials and logs")
	if last.ManifestDir != "" && last.ManifestDir != in.ManifestDir() {
		kept = append(kept, last.ManifestDir)
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
