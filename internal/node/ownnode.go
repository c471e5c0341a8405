package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/logging"
	"github.com/holdfast-dev/holdfast/internal/mounttree"
)

// ownMark is a file in the folder of a node that was made to run single pods.
// Nothing in such a folder is anybody's but its images. Whoever runs a pod there
// has the file locked.
const ownMark = "state/single-pods"

func isOwn(in *instance.Instance) bool {
	_, err := os.Stat(in.Path(ownMark))
	return err == nil
}

// onOwn runs the pod on a node of its own.
func (run *PodRun) onOwn(ctx context.Context) (err error) {
	root := run.Node.RootDir
	if err := claimFolder(root); err != nil {
		return err
	}
	release, err := run.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if in, err := instance.Open(root); err == nil { // a run before may have been killed
		if err := errors.Join(Down(ctx, in, func(string) {}), emptyOwn(in)); err != nil {
			return fmt.Errorf("take down what an earlier run left in %s: %w", root, err)
		}
	}
	run.Say("starting a node in " + root)
	return errors.Join(run.whileUp(ctx), run.takeDown(context.WithoutCancel(ctx)))
}

// claimFolder marks a folder as one for single pods. It must be one already, or
// empty: in another a node's own pods would start too.
func claimFolder(root string) error {
	mark := filepath.Join(root, ownMark)
	if _, err := os.Stat(mark); err == nil {
		return nil
	}
	if _, err := instance.Open(root); !errors.Is(err, instance.ErrNone) {
		return errors.Join(fmt.Errorf("the node in %s does not run, and it has pods of its own: start it with \"holdfast up --detach --root-dir %s\", or name an empty folder", root, root), err)
	}
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("the folder %s holds something, and no node: name an empty one", root)
	}
	if err := os.MkdirAll(filepath.Dir(mark), 0o700); err != nil {
		return fmt.Errorf("make the node's folder: %w", err)
	}
	return os.WriteFile(mark, nil, 0o600)
}

// takeTurn waits until no other process runs a pod in the folder, and keeps
// others waiting until release, or until this process ends.
func (run *PodRun) takeTurn(ctx context.Context) (release func() error, err error) {
	f, err := os.OpenFile(filepath.Join(run.Node.RootDir, ownMark), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		if !told {
			run.Say("waiting for another process, which runs a pod in " + run.Node.RootDir)
		}
		if err := pauseFor(ctx, askPeriod); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
}

// whileUp starts the node, runs the pod, and stops both.
func (run *PodRun) whileUp(ctx context.Context) (err error) {
	cfg := run.Node
	cfg.APIPort, cfg.KubeletPort = new(0), new(0)
	logs := filepath.Join(cfg.RootDir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("folder for logs: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(logs, "holdfast.log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cfg.Log = logging.New(log, slog.LevelInfo)
	ready := make(chan *instance.Instance, 1)
	cfg.Ready = func(in *instance.Instance) { ready <- in }
	if cfg, err = cfg.Complete(); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx)) // it goes down after its pod
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- Run(running, cfg) }()
	select {
	case err := <-ended:
		return errors.Join(errors.New("the node ended while it started"), err)
	case <-ctx.Done():
		err = context.Cause(ctx)
	case in := <-ready:
		err = run.on(ctx, in)
		client := control.NewClient(in.ControlSocket())
		err = errors.Join(err, client.Down(running, func(string) {}))
	}
	stop()
	return errors.Join(err, <-ended)
}

// takeDown stops what still runs and removes the node, or all of it but its
// images.
func (run *PodRun) takeDown(ctx context.Context) error {
	root := run.Node.RootDir
	in, err := instance.Open(root)
	if errors.Is(err, instance.ErrNone) { // it did not get that far
		if run.Temporary {
			return os.RemoveAll(root)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := Down(ctx, in, func(string) {}); err != nil {
		return run.kept(err)
	}
	if !run.Temporary {
		return emptyOwn(in)
	}
	if _, _, err := Uninstall(ctx, in, func(string) {}); err != nil {
		return run.kept(err)
	}
	return os.RemoveAll(root)
}

func (run *PodRun) kept(err error) error {
	return fmt.Errorf("take down the node in %s: %w (try \"holdfast uninstall --yes --root-dir %s\")", run.Node.RootDir, err, run.Node.RootDir)
}

// emptyOwn removes all that pods left in a folder for single pods: the next one
// finds its images and nothing else.
func emptyOwn(in *instance.Instance) error {
	var errs []error
	for _, dir := range []string{"etcd", "kubelet", "logs"} {
		errs = append(errs, mounttree.Remove(in.Path(dir)))
	}
	return errors.Join(errs...)
}
