package kubelet

import (
	"path/filepath"

	"github.com/holdfast-dev/holdfast/internal/kubelet/server"
)

// wireServer makes the HTTP API.
func (k *Kubelet) wireServer() {
	k.server = server.New(server.Config{
		Listeners: k.cfg.Listeners, HealthListener: k.cfg.HealthListener, ReadOnly: k.cfg.ReadOnlyListeners, Policy: k.cfg.API,
		Certificate: k.cfg.Certificate, ClientCAs: k.cfg.ClientCAs, TLS: k.cfg.TLS,
		TokenReviews: k.cfg.Client.AuthenticationV1().TokenReviews(), AccessReview: k.cfg.Client.AuthorizationV1().SubjectAccessReviews(),
		Node: k.cfg.NodeName, Pods: k.loop, Statuses: k.cache, Relist: k.pleg, Runtime: k.runtime,
		Checkpoints: k.runtime, CheckpointDir: filepath.Join(k.cfg.Dir, "checkpoints"),
		LogDir: k.cfg.LogDir, Metrics: k.cfg.Metrics, Probes: k.probeMetrics, Registerer: k.cfg.Metrics, Log: k.cfg.Log.With("part", "server"),
		Configuration: k.cfg.Configuration, Flags: k.cfg.Flags, SetVerbosity: k.cfg.SetVerbosity, Stats: k.stats,
		Checks: []server.Check{{Name: "syncloop", Err: k.loop.Healthy}, {Name: "pleg", Err: k.pleg.Healthy}},
	})
}
