// Package kubelet wires the node agent: it runs the pods of its sources on a
// container runtime and tells the API about them.
package kubelet

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointer"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/csi"
	"github.com/holdfast-dev/holdfast/internal/kubelet/csinode"
	"github.com/holdfast-dev/holdfast/internal/kubelet/devices"
	"github.com/holdfast-dev/holdfast/internal/kubelet/eviction"
	"github.com/holdfast-dev/holdfast/internal/kubelet/hoststats"
	"github.com/holdfast-dev/holdfast/internal/kubelet/imagegc"
	"github.com/holdfast-dev/holdfast/internal/kubelet/logrotate"
	"github.com/holdfast-dev/holdfast/internal/kubelet/mirror"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodeshutdown"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodestatus"
	"github.com/holdfast-dev/holdfast/internal/kubelet/objects"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pleg"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pluginregistry"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podcertificate"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podcgroup"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfolder"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podresources"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsource"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podstatus"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsync"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podworker"
	"github.com/holdfast-dev/holdfast/internal/kubelet/prober"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pullrecords"
	"github.com/holdfast-dev/holdfast/internal/kubelet/server"
	"github.com/holdfast-dev/holdfast/internal/kubelet/stats"
	"github.com/holdfast-dev/holdfast/internal/kubelet/syncloop"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumemanager"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumestats"
	"github.com/holdfast-dev/holdfast/internal/rungroup"
)

// A Kubelet is one node agent.
type Kubelet struct {
	cfg  Config
	conn *grpc.ClientConn

	imageConn *grpc.ClientConn // nil: the runtime has the images

	runtime  *cri.Runtime
	cache    *observed.Cache
	pleg     *pleg.Generator
	objects  *objects.Store
	volumes  *volumemanager.Manager
	statuses *podstatus.Manager
	syncer   *podsync.Syncer
	workers  *podworker.Workers
	loop     *syncloop.Loop
	probes   *prober.Prober
	node     *nodestatus.Reporter
	files    *podsource.Static
	fromURL  *podsource.Static
	api      *podsource.API
	server   *server.Server
	mirrors  *mirror.Keeper
	events   *recorder
	resolver *hoststats.Resolver
	cgroups  *podcgroup.Manager
	folders  *podfolder.Folders
	images   *imagegc.Collector
	logs     *logrotate.Rotator
	pulls    *pullrecords.Store
	shutdown *nodeshutdown.Manager

	evictions *eviction.Manager
	plugins   *pluginregistry.Registry
	csi       *csi.Host
	csiNode   *csinode.Publisher

	certificates *podcertificate.Manager
	podResources *podresources.Server
	devices      *devices.Manager

	volumeStats *volumestats.Analyzer
	stats       *stats.Collector

	hiddenPaths []string // that containers do not see

	checkpoint *checkpointer.Checkpointer // nil: nothing is kept

	probeMetrics *prometheus.Registry // of /metrics/probes
}

// New wires a kubelet. It starts nothing.
func New(cfg Config) (*Kubelet, error) {
	conn, err := cri.Dial(cfg.RuntimeEndpoint, cri.NewOperations(cfg.Metrics).Option())
	if err != nil {
		return nil, fmt.Errorf("container runtime %s: %w", cfg.RuntimeEndpoint, err)
	}
	k := &Kubelet{cfg: cfg, conn: conn}
	if cfg.ImageEndpoint != "" && cfg.ImageEndpoint != cfg.RuntimeEndpoint {
		if k.imageConn, err = cri.Dial(cfg.ImageEndpoint); err != nil {
			return nil, errors.Join(fmt.Errorf("image service %s: %w", cfg.ImageEndpoint, err), conn.Close())
		}
	}
	if err := k.wire(); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// Run runs the node's pods until ctx is done. Pods go on after that.
func (k *Kubelet) Run(ctx context.Context) error {
	var parts rungroup.Group
	parts.Add("events", k.events.run)
	if k.checkpoint != nil {
		parts.Add("checkpoint", k.checkpoint.Run)
	}
	parts.Add("limits of all pods", k.boundPods)
	parts.Add("objects", k.objects.Run)
	parts.Add("pod certificates", k.certificates.Run)
	parts.Add("node status", k.node.Run)
	parts.Add("pod status", k.statuses.Run)
	parts.Add("mirror pods", k.mirrors.Run)
	parts.Add("registration", k.pokeMirrors)
	parts.Add("CSI node", k.csiNode.Run)
	parts.Add("volumes", k.volumes.Run)
	parts.Add("plugins", k.plugins.Run)
	parts.Add("devices", k.devices.Run)
	parts.Add("lifecycle events", k.pleg.Run)
	parts.Add("workers", k.workers.Run)
	parts.Add("evictions", k.evictions.Run)
	parts.Add("figures of volumes", k.volumeStats.Run)
	parts.Add("figures", k.stats.Run)
	parts.Add("probes", k.probes.Run)
	parts.Add("probe results", k.passProbeResults)
	parts.Add("sync loop", k.loop.Run)
	parts.Add("node shutdown", k.shutdown.Run)
	parts.Add("images", k.images.Run)
	parts.Add("logs", k.logs.Run)
	parts.Add("static pods", k.files.Run)
	parts.Add("static pods of a URL", k.fromURL.Run)
	parts.Add("API pods", k.api.Run)
	parts.Add("server", k.server.Run)
	parts.Add("pod resources", k.podResources.Run)
	return parts.Run(ctx)
}

// Ready is closed once the API has the node as ready.
func (k *Kubelet) Ready() <-chan struct{} { return k.node.Ready() }

// Synced is closed once the pods of every source were taken: what ran before is
// known, and what is missing is being started.
func (k *Kubelet) Synced() <-chan struct{} { return k.loop.Synced() }

// Healthy returns an error if the sync loop does not turn.
func (k *Kubelet) Healthy() error { return k.loop.Healthy() }

// APISource tells how the source "api" is.
func (k *Kubelet) APISource() podsource.State {
	s := k.api.State()
	if answered, ok := k.checkpoint.Since(); ok {
		s.RestoredFrom = answered
	}
	return s
}

// Pods returns the node's pods with their status as last computed.
func (k *Kubelet) Pods() []*v1.Pod { return k.loop.Pods() }

// Ending reports whether a pod is being ended: one that is wanted starts anew
// after that.
func (k *Kubelet) Ending(uid types.UID) bool { return k.workers.IsTerminating(uid) }

// Close ends the connections to the runtime.
func (k *Kubelet) Close() error {
	err := k.conn.Close()
	if k.imageConn != nil {
		err = errors.Join(err, k.imageConn.Close())
	}
	return err
}
