package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/node"
)

// Exit codes of run that are not the pod's own, beside those of package podrun.
const (
	exitInvalid  = 120
	exitTimeout  = 124
	exitRunError = 125
	exitSignal   = 128 // and the signal's number
)

// runFlags are the flags of `holdfast run`.
type runFlags struct {
	files    []string
	archives []string
	config   string
	wait     bool
	timeout  time.Duration
}

func newRun(g *global) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run -f FILE",
		Short: "Run one pod to its end: its output, its exit code",
		Long: `Starts a pod at once, writes what its containers write to standard output, ends
with its exit code, and removes it. Progress goes to standard error.

If a node runs in the root folder, the pod runs there. If none does, a node is
started for this one pod in a folder of its own below $TMPDIR or /var/tmp, and is
removed without a trace. With --root-dir naming an empty folder, or one from an
earlier run, the node is started there, and the images stay for the next run;
runs in one such folder take turns.

FILE holds exactly one Pod, and may hold what it needs (ConfigMaps, Secrets,
claims and so on), which is made before the pod and deleted after it. Nothing
that is there already is changed. The pod may have a generateName.

With several containers each line begins with [CONTAINER]. A container that is
restarted is followed. A pod whose restartPolicy is Always, the default, runs
until it is interrupted.

Ctrl-C and SIGTERM stop the pod, with its grace period, and remove everything as
ever; a second one ends at once and says what is left.

The exit code is 0 if all containers ended well, else that of the container that
failed first (128 and the number of the signal that killed it), or
  120  the file is wrong, or something in it is there already
  121  an image could not be had
  122  the node did not take the pod, or put it out
  123  a container could not be made or started
  124  the time of --timeout, or of the pod's activeDeadlineSeconds, is over
  125  the command line is wrong, or the node failed
  130  Ctrl-C (143: SIGTERM)`,
		Example: `  holdfast run -f test.yaml
  holdfast run -f test.yaml --timeout 10m --image-archive app.tar
  generate-pod | holdfast run -f - > output.txt
  holdfast run -f test.yaml --root-dir /var/cache/ci-node   # keeps the images
  holdfast run -f web.yaml --wait=false                     # on a node that runs`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return &exitError{exitRunError, err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runPod(cmd, g, &f)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.files, "file", "f", nil, "manifest, - for standard input; may be given again")
	flags.StringSliceVar(&f.archives, "image-archive", nil, "archive of images to import first, as docker save writes it; may be given again")
	flags.StringVar(&f.config, "config", "", "settings of a node that is started for the pod, see docs/configuration.md")
	flags.BoolVar(&f.wait, "wait", true, "wait for the pod's end; --wait=false starts it on a node that runs and leaves it")
	flags.DurationVar(&f.timeout, "timeout", 0, "stop the pod after this time, such as 10m (default none)")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitRunError, err} })
	return cmd
}

func runPod(cmd *cobra.Command, g *global, f *runFlags) error {
	docs, err := f.documents(cmd)
	if err != nil {
		return &exitError{exitInvalid, err}
	}
	run := node.PodRun{
		Documents: docs, Archives: f.archives, Leave: !f.wait,
		Out: cmd.OutOrStdout(), Say: func(s string) { fmt.Fprintln(cmd.ErrOrStderr(), s) },
	}
	if err := cli.NeedRoot(cmd); err != nil {
		return &exitError{exitRunError, err}
	}
	if run.Node, err = f.settings(); err != nil {
		return &exitError{exitRunError, err}
	}
	if err := f.place(cmd, g, &run); err != nil {
		return &exitError{exitRunError, err}
	}
	var left atomic.Pointer[string] // how to remove what is left if this ends now
	run.Made = func(namespace, name string) {
		run.Say(fmt.Sprintf("pod %s/%s was made", namespace, name))
		hint := deletion(run.Node.RootDir, manifest.Key{Kind: "Pod", Namespace: namespace, Name: name})
		if run.Leave {
			run.Say(fmt.Sprintf("follow it with: holdfast --root-dir %s kubectl logs -f -n %s %s", shellWord(run.Node.RootDir), namespace, name))
			for _, d := range docs {
				run.Say("remove it with: " + deletion(run.Node.RootDir, d.Key))
			}
		}
		if !run.Temporary {
			left.Store(&hint)
		}
	}
	if run.Temporary {
		left.Store(new("holdfast uninstall --yes --root-dir " + shellWord(run.Node.RootDir)))
	}
	ctx, again, stop := f.interruptible(cmd)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- node.RunPod(ctx, run) }()
	select {
	case err := <-ended:
		return withCode(err)
	case code := <-again: // RunPod is not waited for: the process ends now
		err := errors.New("ended without clearing up")
		if hint := left.Load(); hint != nil {
			err = fmt.Errorf("%w: remove what is left with: %s", err, *hint)
		}
		return &exitError{code, err}
	}
}

// deletion returns the command that deletes an object of a node.
func deletion(root string, of manifest.Key) string {
	line := fmt.Sprintf("holdfast --root-dir %s kubectl delete %s %s", shellWord(root), strings.ToLower(of.Kind), of.Name)
	if of.Namespace != "" {
		line += " -n " + of.Namespace
	}
	return line
}

// withCode returns an error with the exit code that it holds.
func withCode(err error) error {
	if err == nil {
		return nil
	}
	type coded interface {
		error
		ExitCode() int
	}
	if e, ok := errors.AsType[coded](err); ok {
		return &exitError{e.ExitCode(), err}
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return &exitError{e.code, err}
	}
	return &exitError{exitRunError, err}
}

// documents reads what was named.
func (f *runFlags) documents(cmd *cobra.Command) ([]manifest.Document, error) {
	if len(f.files) == 0 {
		return nil, errors.New("name the pod's manifest with -f FILE, or -f - for standard input")
	}
	parser := manifest.New().Naming(func(prefix string) string { return prefix + rand.String(5) })
	var docs []manifest.Document
	for _, file := range f.files {
		data, err := readInput(cmd.InOrStdin(), file)
		if err != nil {
			return nil, err
		}
		if file == "-" {
			file = "standard input"
		}
		reading := parser.Parse(file, data)
		if len(reading.Faults) > 0 {
			lines := []error{fmt.Errorf("%s is wrong, and nothing was started", file)}
			for _, fault := range reading.Faults {
				lines = append(lines, errors.New(fault.String()))
			}
			return nil, errors.Join(lines...)
		}
		docs = append(docs, reading.Documents...)
	}
	pods := 0
	for _, d := range docs {
		if d.Key.Kind == "Pod" {
			pods++
		}
	}
	if pods != 1 {
		return nil, fmt.Errorf("%s: %d Pods: exactly one is wanted, with the objects that it needs", strings.Join(f.files, ", "), pods)
	}
	return docs, nil
}

// readInput returns what a file, or standard input, holds.
func readInput(stdin io.Reader, file string) ([]byte, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(bufio.NewReader(in), manifest.MaxFileSize+1)) // the parser refuses more
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return data, nil
}

// settings returns those of a node that is started for the pod.
func (f *runFlags) settings() (node.Config, error) {
	if f.config == "" {
		return node.Config{}, nil
	}
	cfg, err := node.LoadConfig(f.config)
	if err != nil {
		return cfg, err
	}
	for field, set := range map[string]bool{
		"rootDir": cfg.RootDir != "", "manifestDir": cfg.ManifestDir != "", "apiPort": cfg.APIPort != nil, "kubeletPort": cfg.KubeletPort != nil,
		"containerRuntimeEndpoint": cfg.ContainerRuntimeEndpoint != "",
	} {
		if set {
			return cfg, fmt.Errorf("configuration %s: %s is not for a node that runs one pod: leave it out", f.config, field)
		}
	}
	return cfg, nil
}

// place says where the pod runs: on the node that runs, or in a folder that is
// named or made.
func (f *runFlags) place(cmd *cobra.Command, g *global, run *node.PodRun) error {
	named := cmd.Flags().Changed("root-dir") || os.Getenv("HOLDFAST_ROOT_DIR") != ""
	running := false
	if in, err := g.open(); err == nil {
		_, running = in.Running()
	}
	if running && f.config != "" {
		return fmt.Errorf("--config is for a node that is started for the pod, and one runs in %s: leave the flag out", g.rootDir)
	}
	if named || running || run.Leave {
		root, err := filepath.Abs(g.rootDir)
		run.Node.RootDir = root
		return err
	}
	parent := os.Getenv("TMPDIR")
	if parent == "" {
		parent = "/var/tmp" // images are large, and /tmp is often memory
	}
	root, err := os.MkdirTemp(parent, "holdfast-run-")
	run.Node.RootDir, run.Temporary = root, true
	return err
}

// interruptible returns a context that ends at the first signal or after the
// timeout, with the exit code in its cause, and a channel that gets the exit
// code once there was another signal.
func (f *runFlags) interruptible(cmd *cobra.Command) (ctx context.Context, again <-chan int, stop func()) {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	free := func() {}
	if f.timeout > 0 {
		ctx, free = context.WithTimeoutCause(ctx, f.timeout, &exitError{exitTimeout, fmt.Errorf("not done within %v (--timeout)", f.timeout)})
	}
	signals := make(chan os.Signal, 2) // the first and the second, whenever they come
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	// A reader of the output that is gone shows as an error of writing, and not
	// by the end of this process.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, unix.SIGPIPE)
	second := make(chan int, 1)
	done := make(chan struct{})
	var listener sync.WaitGroup
	listener.Go(func() {
		for first := true; ; first = false {
			select {
			case <-done:
				return
			case s := <-signals:
				number, _ := s.(unix.Signal)
				code := exitSignal + int(number)
				if !first {
					second <- code
					return
				}
				cancel(&exitError{code, fmt.Errorf("ended by %s", unix.SignalName(number))})
			}
		}
	})
	return ctx, second, func() {
		signal.Stop(signals)
		signal.Stop(broken)
		close(done)
		listener.Wait()
		free()
		cancel(nil)
	}
}
