package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/ociimage"
	"github.com/holdfast-dev/holdfast/internal/podrun"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

// A PodRun is one pod to run to its end, by RunPod.
type PodRun struct {
	// Node is the node to start if none runs in its RootDir. It needs no more
	// than that field.
	Node Config
	// Temporary: the root folder is for this run alone, and goes with the node.
	// Else the node goes down and its images stay.
	Temporary bool
	// Documents are the pod, exactly one, and what it needs.
	Documents []manifest.Document
	// Archives are files of images, imported before the pod is made.
	Archives []string
	// Leave makes the pod and leaves it, on a node that runs.
	Leave bool

	Out  io.Writer                    // gets the containers' output; required
	Say  func(step string)            // gets progress; required
	Made func(namespace, name string) // told the pod, once there is one; may be nil
}

// RunPod runs one pod on the node in the root folder, or, where none runs, on
// one that it starts and takes down. An error may hold a *podrun.Failure, which
// has the exit code. Once ctx is done everything is stopped, with grace, and
// removed; the error is ctx's cause.
func RunPod(ctx context.Context, run PodRun) error {
	in, err := instance.Open(run.Node.RootDir)
	switch {
	case errors.Is(err, instance.ErrNone):
	case err != nil:
		return err
	case isOwn(in): // nobody else's pod runs there: it would go down with its node
	default:
		if _, running := in.Running(); running {
			if err := awaitReady(ctx, in, run.Say); err != nil {
				return err
			}
			return run.on(ctx, in)
		}
	}
	if run.Leave {
		return fmt.Errorf("no node runs in %s, so that the pod cannot be left running: start one with \"holdfast up --detach\", or wait for the pod", run.Node.RootDir)
	}
	return run.onOwn(ctx)
}

// on runs the pod on a node that is ready.
func (run *PodRun) on(ctx context.Context, in *instance.Instance) (err error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", in.Kubeconfig())
	if err != nil {
		return fmt.Errorf("credentials of the node: %w", err)
	}
	cfg.QPS, cfg.Burst = -1, -1 // the API is this machine's own
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	runner, err := podrun.New(podrun.Config{
		Client: client, Objects: objects, Documents: run.Documents, Logs: in.Path("logs", "pods"),
		Out: run.Out, Say: run.Say, Made: run.Made, Leave: run.Leave,
	})
	if err != nil {
		return err
	}
	unpin, err := run.importArchives(ctx, in)
	defer func() { err = errors.Join(err, unpin(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	return runner.Run(ctx)
}

// importArchives imports the archives of images. They are pinned until unpin,
// and may then be collected like any other.
func (run *PodRun) importArchives(ctx context.Context, in *instance.Instance) (unpin func(context.Context) error, err error) {
	var refs []string
	if len(run.Archives) == 0 {
		return func(context.Context) error { return nil }, nil
	}
	cfg := hostConfig(in, slog.New(slog.DiscardHandler), nil)
	cfg.RuntimeDir, err = runtimehost.FindRuntimeDir()
	host := runtimehost.New(cfg)
	unpin = func(ctx context.Context) error {
		var errs []error
		for _, ref := range refs {
			errs = append(errs, host.Pin(ctx, ref, false))
		}
		return errors.Join(errs...)
	}
	if err != nil {
		return unpin, err
	}
	for _, path := range run.Archives {
		run.Say("importing " + path)
		images, err := importArchive(ctx, host, path)
		if err != nil {
			return unpin, &podrun.Failure{Code: podrun.CodeImage, Err: fmt.Errorf("image archive %s: %w", path, err)}
		}
		for _, img := range images {
			refs = append(refs, img.Ref)
		}
	}
	return unpin, nil
}

// importArchive imports the images of one archive that the runtime does not
// have, and returns them.
func importArchive(ctx context.Context, host *runtimehost.Host, path string) (images []ociimage.Named, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	archive, err := ociimage.ReadArchive(f, "")
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return archive.Images, host.Import(ctx, f, archive.Images)
}

// askPeriod is between two looks at a node that somebody else starts or stops.
const askPeriod = 100 * time.Millisecond

// awaitReady waits for a node that another process has just started.
func awaitReady(ctx context.Context, in *instance.Instance, say func(string)) error {
	client := control.NewClient(in.ControlSocket())
	for told := false; ; told = true {
		report, err := client.Report(ctx)
		switch {
		case err == nil && report.Ready:
			return nil
		case err != nil && !errors.Is(err, control.ErrNotRunning):
			return fmt.Errorf("ask the node in %s: %w", in.Root, err)
		}
		if _, running := in.Running(); !running {
			return fmt.Errorf("the node in %s has ended meanwhile: try again", in.Root)
		}
		if !told {
			say("waiting for the node in " + in.Root + " to be ready")
		}
		if err := pauseFor(ctx, askPeriod); err != nil {
			return err
		}
	}
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
