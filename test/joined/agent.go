package joined

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/clusternode"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubeletconfig"
	"github.com/holdfast-dev/holdfast/internal/rungroup"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

// Options are what a test chooses of an agent. They go to another process, as
// JSON.
type Options struct {
	// Debug has the agent log its decisions.
	Debug bool
	// Bootstrap has the agent ask the cluster for its certificates, by a token, and
	// renew them. Without it, they are there.
	Bootstrap bool
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
	Bootstrap  string // kubeconfig with a token
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
	return errors.Join(a.run(ctx), release())
}

// An agent is the parts of a node that is joined.
type agent struct {
	host     *runtimehost.Host
	node     *clusternode.Node
	answers  *http.Server
	listener net.Listener // of answers
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
	if kept := cfg.Options.Checkpoint; kept != nil {
		kept.Dir = cmp.Or(kept.Dir, in.Path("checkpoint"))
	}
	var err error
	a.node, err = clusternode.New(ctx, clusternode.Config{
		Kubelet: configuration(cfg, in, a.host.Endpoint()), Kubeconfig: cfg.Kubeconfig, Bootstrap: cfg.Bootstrap, Root: in.Path("kubelet"),
		Name: cfg.Name, NodeIP: in.Gateway().String(), Checkpoint: cfg.Options.Checkpoint, Log: log,
	})
	if err != nil {
		return nil, err
	}
	if err := a.listen(ctx, in); err != nil {
		return nil, errors.Join(err, a.node.Close())
	}
	return a, nil
}

// configuration is the kubelet's, beside which others run on this machine.
func configuration(cfg agentConfig, in *instance.Instance, endpoint string) *v1beta1.KubeletConfiguration {
	k := kubeletconfig.Default()
	k.ContainerRuntimeEndpoint, k.CgroupRoot = endpoint, in.CgroupParent()
	k.StaticPodPath, k.PodLogsDir = in.ManifestDir(), in.Path("logs", "pods")
	k.Address, k.Port, k.HealthzPort = in.Gateway().String(), 0, new(int32(0))
	k.TLSCertFile, k.TLSPrivateKeyFile, k.Authentication.X509.ClientCAFile = cfg.Cert, cfg.Key, cfg.ClientCA
	if cfg.Options.Bootstrap {
		k.TLSCertFile, k.TLSPrivateKeyFile = "", ""
		k.RotateCertificates, k.ServerTLSBootstrap = true, true
	}
	return &k
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
	r := Report{Faults: a.node.Kubelet().Faults(), Pods: a.node.Kubelet().Pods()}
	select {
	case <-a.node.Kubelet().Synced():
		r.Synced = true
	default:
	}
	_ = json.NewEncoder(w).Encode(r) // the test sees an answer cut short
}

func (a *agent) run(ctx context.Context) error {
	var parts rungroup.Group
	parts.AddReady("runtime", a.host.Run, a.host.Ready())
	parts.Add("node", a.node.Run)
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
