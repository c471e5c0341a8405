// Package node wires one whole node, `holdfast up`: the private container
// runtime, the embedded API, the manifest folder and the kubelet.
//
// A node that stops leaves its pods and its containerd running and adopts them
// at the next start; only Down stops pods.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/holdfast-dev/holdfast/internal/imagedir"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/localapi"
	"github.com/holdfast-dev/holdfast/internal/localapi/faultevents"
	"github.com/holdfast-dev/holdfast/internal/localapi/objects"
	"github.com/holdfast-dev/holdfast/internal/logfile"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
	"github.com/holdfast-dev/holdfast/internal/manifesturl"
	"github.com/holdfast-dev/holdfast/internal/node/board"
	"github.com/holdfast-dev/holdfast/internal/node/controlserver"
	"github.com/holdfast-dev/holdfast/internal/node/heapkeeper"
	"github.com/holdfast-dev/holdfast/internal/node/servicemanager"
	"github.com/holdfast-dev/holdfast/internal/rungroup"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

// The parts of a node, as its report names them.
const (
	partRuntime   = "containerd"
	partAPI       = "api"
	partManifests = "manifests"
	partKubelet   = "kubelet"

	partManifestURL = "manifest URL" // if there is one
)

// A node is one node of one process.
type node struct {
	cfg     Config
	in      *instance.Instance
	log     *slog.Logger
	started time.Time
	board   *board.Board
	address netip.Addr // the node's own, as pods reach it

	host        *runtimehost.Host // nil: the user's own runtime
	api         *localapi.Server
	kubelet     *kubelet.Kubelet
	manifests   *manifestdir.Dir
	manifestURL *manifesturl.URL // nil: none
	archives    *imagedir.Dir
	objects     *objects.Applier
	faultEvents *faultevents.Recorder
	manager     *servicemanager.Notifier
	metrics     *prometheus.Registry

	apiListeners    []net.Listener // of the API, beside its own on loopback
	kubeletListener net.Listener   // of the kubelet's API, on loopback
	kubeletTLS      *kubeletTLS

	admin rest.Interface // of the API, as the administrator

	made    chan struct{} // closed when every part is there to be asked
	read    chan bool     // gets once whether the manifest folder could be read
	readURL chan bool     // likewise of the manifest URL; nil: there is none
	ready   chan struct{} // closed by announce
}

// Run runs the node described by cfg, which must be complete, until ctx is
// done or somebody asks it to go down. It returns what kept it from working;
// nil after a stop that was asked for.
func Run(ctx context.Context, cfg Config) (err error) {
	in, release, err := open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	n := &node{
		cfg: cfg, in: in, log: cfg.Log, started: time.Now(), made: make(chan struct{}), read: make(chan bool, 1), ready: make(chan struct{}),
		board: board.New(parts(cfg)...),
	}
	if cfg.ManifestURL.IsSet() {
		n.readURL = make(chan bool, 1)
	}
	if err := n.makeFolders(); err != nil {
		return err
	}
	cfg.Progress(fmt.Sprintf("starting node %s in %s", cfg.NodeName, in.Root))

	return n.serve(ctx)
}

// parts are the parts that the node's report names.
func parts(cfg Config) []string {
	all := []string{partRuntime, partAPI, partManifests, partKubelet}
	if cfg.ManifestURL.IsSet() {
		all = append(all, partManifestURL)
	}
	return all
}

// serve runs the node and its control socket. The socket answers from the
// first moment to the last: it tells how the start goes, and, after an order
// to go down, that everything has been stopped.
func (n *node) serve(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	var down sync.WaitGroup
	control := controlserver.New(controlserver.Config{
		Socket: n.in.ControlSocket(),
		Report: n.report, Store: n.snapshot,
		Down: func(ctx context.Context, step func(string)) error {
			down.Add(1) // before stop: serve waits for it once the node has ended
			defer down.Done()
			step("stopping the agent")
			stop()
			<-ended
			return n.stopPods(ctx, step)
		},
	})
	answering, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	answered := make(chan error, 1)
	go func() {
		err := control.Run(answering)
		stop()
		answered <- err
	}()
	err := n.run(running)
	close(ended)
	down.Wait()
	hangUp()
	return errors.Join(err, <-answered)
}

// run wires the parts and runs them until ctx is done or one of them fails.
func (n *node) run(ctx context.Context) error {
	if err := n.prepare(ctx); err != nil {
		return err
	}
	close(n.made)
	var parts rungroup.Group
	if n.host != nil {
		parts.Add(partRuntime, watch(n.board, partRuntime, n.host.Run, n.host.Ready()))
	}
	parts.AddReady(partAPI, watch(n.board, partAPI, n.api.Run, n.api.Ready()), n.api.Ready())
	for _, l := range n.apiListeners {
		parts.Add("api on "+l.Addr().String(), func(ctx context.Context) error { return n.api.Serve(ctx, l) })
	}
	parts.Add("fault events", n.faultEvents.Run)
	parts.Add("objects", n.objects.Run)
	if n.host != nil {
		// A pod that starts before the pause image is there fails, and then
		// waits out a back-off many times as long.
		parts.AddReady("images", pause, n.host.Ready())
	}
	parts.Add(partKubelet, watch(n.board, partKubelet, n.kubelet.Run, n.kubelet.Ready()))
	parts.Add("image archives", n.archives.Run)
	parts.Add(partManifests, watch(n.board, partManifests, n.manifests.Run, nil))
	if n.manifestURL != nil {
		parts.Add(partManifestURL, watch(n.board, partManifestURL, n.manifestURL.Run, nil))
	}
	parts.Add("readiness", n.announce)
	if n.cfg.LogFile != "" {
		parts.Add("log file", logfile.New(logfile.Config{Path: n.cfg.LogFile, File: os.Stderr, Log: n.log.With("part", "logfile")}).Run)
	}
	parts.Add("service manager", n.manager.Run)
	parts.Add("heap", heapkeeper.New(heapkeeper.Config{Ready: n.ready, Log: n.log.With("part", "heap")}).Run)
	return parts.Run(ctx)
}

// pause is a part that does nothing: it is there to be waited for.
func pause(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (n *node) makeFolders() error {
	for path, mode := range map[string]os.FileMode{
		n.in.Path("logs", "pods"): 0o755, n.in.Path("kubelet"): 0o750, n.in.Path("state"): 0o700, n.in.Run(): 0o711,
		n.in.Path(imagesFolder): 0o755,
	} {
		if err := os.MkdirAll(path, mode); err != nil {
			return fmt.Errorf("make the node's folders: %w", err)
		}
	}
	return n.makeManifestFolder()
}

// makeManifestFolder makes the node's own manifest folder at the first start.
func (n *node) makeManifestFolder() error {
	if n.cfg.ManifestDir != n.in.ManifestDir() {
		return nil // the user's own folder: it may come later, from a mount perhaps
	}
	if docs, _ := manifestdir.Saved(manifestState(n.in), manifest.New()); len(docs) > 0 {
		return nil // one that is away: an empty one in its place would end what runs
	}
	if err := os.MkdirAll(n.cfg.ManifestDir, 0o755); err != nil {
		return fmt.Errorf("make the manifest folder: %w", err)
	}
	return nil
}
