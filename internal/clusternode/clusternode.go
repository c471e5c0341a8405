// Package clusternode wires `holdfast kubelet`: the node agent as a node of a
// Kubernetes cluster, on a container runtime that is there already, in place of the
// upstream kubelet.
//
// It reads the folder and the URL of static pods, a kubeconfig and certificates; it
// writes below its root folder and the folder of logs. A node that stops leaves its
// pods running, and the next one adopts them.
package clusternode

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/kubelet/identity"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodefolder"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reservation"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
	"github.com/holdfast-dev/holdfast/internal/manifesturl"
	"github.com/holdfast-dev/holdfast/internal/processmetrics"
	"github.com/holdfast-dev/holdfast/internal/restmetrics"
	"github.com/holdfast-dev/holdfast/internal/rungroup"
)

// Config says which node this is.
type Config struct {
	// Kubelet is upstream's configuration, complete and valid, as kubeletconfig.Load
	// returns it. Port 0 stands for any free port. Nobody changes it any more.
	Kubelet *kubeletconfig.KubeletConfiguration
	// Kubeconfig is the file that says how the cluster's API is reached, and as whom.
	Kubeconfig string
	// Bootstrap is the kubeconfig by which a client certificate is asked for while
	// there is none that is good. Empty: there is none.
	Bootstrap string
	// Root is the folder of pods' volumes and of the node's state; absolute, made if
	// it is not there.
	Root string
	// CertDir is the folder of certificates. Empty: pki in Root.
	CertDir string
	// Name is the Node's.
	Name string
	// NodeIP is what --node-ip says: one address, or two of two families with a
	// comma. Empty: that of the route.
	NodeIP string
	// Labels are those that the Node gets beside what every Node has.
	Labels map[string]string
	// ExternalCloud leaves the Node's addresses to a cloud's controller, and the Node
	// tainted until that has seen it.
	ExternalCloud bool

	// ProviderConfig and ProviderBinDir are where programs that know credentials of
	// images are configured, and where they are. Both or none.
	ProviderConfig, ProviderBinDir string
	// Checkpoint says where the cluster's pods are kept for a start without its API.
	// Nil: they are not.
	Checkpoint *kubelet.Checkpoint

	// Flags are those that the node was started with, by name, for /flagz.
	Flags map[string]string
	// SetVerbosity changes what is logged, to a number as of --v; its error says what
	// is wrong with that. Nil: it cannot be changed.
	SetVerbosity func(level string) error

	Log *slog.Logger
}

// A Node is one node of a cluster.
type Node struct {
	cfg       Config
	log       *slog.Logger
	metrics   *prometheus.Registry
	release   func() error // the root folder; nil: it is not taken
	identity  *identity.Identity
	clients   func() *x509.CertPool // whose clients the kubelet's API takes
	sockets   sockets
	kubelet   *kubelet.Kubelet
	manifests *manifestdir.Dir // nil: no folder
	url       *manifesturl.URL // nil: none
}

// New wires a node and takes its ports. It starts nothing: Run does, or Close gives
// up what was taken.
func New(ctx context.Context, cfg Config) (_ *Node, err error) {
	n := &Node{cfg: cfg, log: cfg.Log, metrics: prometheus.NewRegistry()}
	processmetrics.Register(n.metrics)
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if err := n.makeFolders(); err != nil {
		return nil, err
	}
	if n.release, err = nodefolder.Take(cfg.Root); err != nil {
		return nil, err
	}
	if err := n.openIdentity(); err != nil {
		return nil, err
	}
	if err := n.sockets.listen(ctx, cfg.Kubelet); err != nil {
		return nil, err
	}
	agent, err := n.agent()
	if err != nil {
		return nil, err
	}
	if n.kubelet, err = kubelet.New(agent); err != nil {
		return nil, err
	}
	return n, n.wireSources()
}

// agent is what the node agent works with.
func (n *Node) agent() (kubelet.Config, error) {
	cfg := kubelet.Config{
		NodeName: n.cfg.Name, Dir: n.cfg.Root, ShutdownName: shutdownName,
		Listeners: n.sockets.api, HealthListener: n.sockets.health, ReadOnlyListeners: n.sockets.open, Certificate: n.identity.Certificate, ClientCAs: n.clients,
		PollClaims: true, Flags: n.cfg.Flags, SetVerbosity: n.cfg.SetVerbosity,
		Checkpoint: n.cfg.Checkpoint, Metrics: n.metrics, Log: n.log,
	}
	if err := cfg.Configure(n.cfg.Kubelet); err != nil {
		return cfg, err
	}
	var err error
	if cfg.Node, err = n.nodeSettings(); err != nil {
		return cfg, err
	}
	kept, err := reservation.Of(n.cfg.Kubelet)
	if err != nil {
		return cfg, err
	}
	cfg.Reservation = &kept
	if cfg.CredentialProviders, err = providers(n.cfg); err != nil {
		return cfg, err
	}
	if len(cfg.Shutdown) == 0 { // an earlier configuration may have wanted it
		if err := kubelet.WithdrawShutdown(shutdownName); err != nil {
			return cfg, fmt.Errorf("take back what logind was told: %w", err)
		}
	}
	asked := restmetrics.New(n.metrics)
	if cfg.Client, err = newClient(asked, n.identity.Client(), n.cfg.Kubelet.KubeAPIQPS, n.cfg.Kubelet.KubeAPIBurst); err != nil {
		return cfg, err
	}
	cfg.EventClient, err = newClient(asked, n.identity.Client(), n.cfg.Kubelet.EventRecordQPS, n.cfg.Kubelet.EventBurst)
	return cfg, err
}

// shutdownName tells this kubelet from others in what is written for logind.
const shutdownName = "kubelet"

// newClient returns a client that sends so much in a second; 0: any amount. What it
// asks is counted.
func newClient(asked *restmetrics.Requests, config *rest.Config, qps *int32, burst int32) (*kubernetes.Clientset, error) {
	config.QPS, config.Burst = float32(*qps), int(burst)
	if config.QPS == 0 {
		config.QPS = -1
	}
	config.Wrap(asked.Wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the cluster's API: %w", err)
	}
	return client, nil
}

// stateFolder holds, in the root folder, what sources of static pods last said.
const stateFolder = "state"

func (n *Node) makeFolders() error {
	for path, mode := range map[string]os.FileMode{
		n.cfg.Root: 0o750, filepath.Join(n.cfg.Root, stateFolder): 0o700, n.cfg.Kubelet.PodLogsDir: 0o755,
	} {
		if err := os.MkdirAll(path, mode); err != nil {
			return fmt.Errorf("make the node's folders: %w", err)
		}
	}
	return nil
}

// Run runs the node until ctx is done. Pods go on after that. It closes what New
// took, and is called once.
func (n *Node) Run(ctx context.Context) error {
	var parts rungroup.Group
	parts.Add("certificates", n.identity.Run)
	parts.Add("kubelet", n.kubelet.Run)
	parts.Add("cgroup driver", func(ctx context.Context) error {
		if err := n.kubelet.CheckCgroupDriver(ctx, n.cfg.Kubelet.CgroupDriver); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	if n.manifests != nil {
		parts.Add("folder of static pods", n.manifests.Run)
	}
	if n.url != nil {
		parts.Add("URL of static pods", n.url.Run)
	}
	return errors.Join(parts.Run(ctx), n.kubelet.Close(), n.release())
}

// Close gives up what New took, for a node that does not run.
func (n *Node) Close() error {
	err := n.sockets.close()
	if n.kubelet != nil {
		err = errors.Join(err, n.kubelet.Close())
	}
	if n.release != nil {
		err = errors.Join(err, n.release())
	}
	return err
}

// Kubelet is the node agent, to be asked how it is.
func (n *Node) Kubelet() *kubelet.Kubelet { return n.kubelet }
