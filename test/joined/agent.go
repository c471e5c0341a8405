package joined

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/kubelet/eviction"
	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
	"github.com/holdfast-dev/holdfast/internal/rungroup"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

// Options are what a test chooses of an agent. They go to another process, as
// JSON.
type Options struct {
	// Debug has the agent log its decisions.
	Debug bool
	// Checkpoint is the kubelet's; without Dir it is in the instance's folder
	// checkpoint.
	Checkpoint *kubelet.Checkpoint
}

// agentConfig is what an agent is told.
type agentConfig struct {
	Name       string
	Root       string // of the instance
	RuntimeDir string
	Kubeconfig string
	// Cert and Key are files: what the kubelet's API is served with.
	Cert, Key string
	ClientCA  string // file: whose clients it takes
	Options   Options
}

// runAgent runs an agent until it gets SIGTERM or whoever started it is gone.
func runAgent(ctx context.Context, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var cfg agentConfig
	if err := json.Unmarshal(data, &cfg); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	go func() { // ends with this process
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the other end's process
		stop()
	}()
	in, err := instance.Open(cfg.Root)
	if err != nil {
		return err
	}
	release, err := in.Lock()
	if err != nil {
		return err
	}
	a, err := newAgent(ctx, cfg, in)
	if err != nil {
		return errors.Join(err, release())
	}
	return errors.Join(a.run(ctx), a.kubelet.Close(), release())
}

// An agent is the parts of a node that is joined.
type agent struct {
	host      *runtimehost.Host
	kubelet   *kubelet.Kubelet
	manifests *manifestdir.Dir
	answers   *http.Server
	listener  net.Listener // of answers
}

func newAgent(ctx context.Context, cfg agentConfig, in *instance.Instance) (*agent, error) {
	level := slog.LevelInfo
	if cfg.Options.Debug {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	hostCfg := hostConfig(in, log.With("part", "runtime"))
	hostCfg.RuntimeDir = cfg.RuntimeDir
	a := &agent{host: runtimehost.New(hostCfg)}
	kubeletCfg, err := kubeletConfig(ctx, cfg, in)
	if err != nil {
		return nil, err
	}
	kubeletCfg.RuntimeEndpoint, kubeletCfg.Log = a.host.Endpoint(), log
	if a.kubelet, err = kubelet.New(kubeletCfg); err != nil {
		return nil, err
	}
	a.manifests = manifestdir.New(manifestdir.Config{
		Dir: in.ManifestDir(), StateFile: in.Path("state", "manifests.json"), Parser: manifest.New(), Check: a.kubelet.CheckManifest,
		Log: log.With("part", "manifests"),
		Publish: func(_ context.Context, set manifestdir.Set) {
			if set.Known {
				a.kubelet.SetManifests(set.Documents)
			}
		},
	})
	return a, a.listen(ctx, in)
}

// kubeletConfig is what the agent's kubelet works with, without its runtime.
func kubeletConfig(ctx context.Context, cfg agentConfig, in *instance.Instance) (c kubelet.Config, err error) {
	rest, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return c, err
	}
	rest.QPS, rest.Burst = 50, 100 // as upstream's kubelet, for each
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return c, err
	}
	events, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return c, err
	}
	serving, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
	if err != nil {
		return c, err
	}
	ca, err := os.ReadFile(cfg.ClientCA)
	if err != nil {
		return c, err
	}
	clientCAs := x509.NewCertPool()
	clientCAs.AppendCertsFromPEM(ca)
	listener, err := listen(ctx, in.Gateway())
	if kept := cfg.Options.Checkpoint; kept != nil {
		kept.Dir = cmp.Or(kept.Dir, in.Path("checkpoint"))
	}
	return kubelet.Config{
		Checkpoint: cfg.Options.Checkpoint,
		NodeName:   cfg.Name, Addresses: []netip.Addr{in.Gateway()},
		Dir: in.Path("kubelet"), LogDir: in.Path("logs", "pods"), CgroupParent: in.CgroupParent(),
		Client: client, EventClient: events, Listeners: []net.Listener{listener}, ClientCAs: func() *x509.CertPool { return clientCAs },
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil },
		Eviction:    eviction.DefaultPolicy(),
		Metrics:     prometheus.NewRegistry(),
	}, err
}

// listen listens on an address that the machine may not have yet: the bridge
// comes with the container runtime.
func listen(ctx context.Context, address netip.Addr) (net.Listener, error) {
	cfg := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		errControl := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
		})
		return errors.Join(err, errControl)
	}}
	return cfg.Listen(ctx, "tcp", netip.AddrPortFrom(address, 0).String())
}

// listen makes the socket on which the test asks what no API shows.
func (a *agent) listen(ctx context.Context, in *instance.Instance) error {
	socket := socket(in)
	if err := os.MkdirAll(in.Run(), 0o755); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var err error
	a.listener, err = new(net.ListenConfig).Listen(ctx, "unix", socket)
	a.answers = &http.Server{Handler: http.HandlerFunc(a.answer), ReadHeaderTimeout: time.Minute}
	return err
}

func socket(in *instance.Instance) string { return in.Run("joined.sock") }

// A Report is what an agent says of itself.
type Report struct {
	// Synced is true once the pods of every source were taken.
	Synced bool
	// Faults are what is wrong now.
	Faults []fault.Fault
	// Pods are the node's, with the status that it saw.
	Pods []*v1.Pod
}

func (a *agent) answer(w http.ResponseWriter, _ *http.Request) {
	r := Report{Faults: a.kubelet.Faults(), Pods: a.kubelet.Pods()}
	select {
	case <-a.kubelet.Synced():
		r.Synced = true
	default:
	}
	_ = json.NewEncoder(w).Encode(r) // the test sees an answer cut short
}

func (a *agent) run(ctx context.Context) error {
	var parts rungroup.Group
	parts.AddReady("runtime", a.host.Run, a.host.Ready())
	parts.Add("kubelet", a.kubelet.Run)
	parts.Add("manifests", a.manifests.Run)
	parts.Add("answers", func(ctx context.Context) error {
		done := context.AfterFunc(ctx, func() { _ = a.answers.Close() })
		defer done()
		if err := a.answers.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return parts.Run(ctx)
}
