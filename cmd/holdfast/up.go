package main

import (
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/logging"
	"github.com/holdfast-dev/holdfast/internal/node"
)

// upFlags are the flags of `holdfast up` beside the shared ones.
type upFlags struct {
	config      string
	manifestDir string
	manifestURL string
	nodeName    string
	apiPort     int
	bindAddress []string
	apiNames    []string
	kubeletPort int
	runtime     string
	podCIDR     string
	providers   string // configuration of image credential providers
	providerBin string
	detach      bool
	detached    bool // this is the process in the background
	verbose     bool
}

func newUp(g *global) *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a node on this machine",
		Long: `Runs a node: a private container runtime, the Kubernetes API and a kubelet that
runs the pods in the manifest folder. It stays in the foreground unless
--detach is given.

SIGTERM, a crash or an upgrade leaves the pods running; the next "holdfast up"
takes them over. "holdfast down" stops them.`,
		Example: `  holdfast up --detach
  holdfast up --root-dir /srv/node --manifest-dir /srv/pods
  holdfast up --manifest-url https://config.example.com/edge-1.yaml
  holdfast up --api-port 0 --kubelet-port 0        # any free ports
  holdfast up --bind-address 192.168.1.5           # kubectl from other machines
  holdfast up --config node.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.settings(cmd, g)
			if err == nil {
				err = cli.NeedRoot(cmd)
			}
			if err != nil {
				return err
			}
			if f.detach {
				return detach(cmd, cfg, &f)
			}
			return runNode(cmd, cfg, &f)
		},
	}
	f.bindSettings(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.detach, "detach", false, "run in the background, and return when the node is ready")
	flags.BoolVar(&f.detached, "detached", false, "")
	flags.Lookup("detached").Hidden = true
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "log decisions too")
	return cmd
}

// bindSettings gives cmd the flags that say what the node is.
func (f *upFlags) bindSettings(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "file with these settings, see docs/configuration.md; flags win over it")
	flags.StringVar(&f.manifestDir, "manifest-dir", "", `folder to read pods from (default "<root-dir>/manifests")`)
	flags.StringVar(&f.manifestURL, "manifest-url", "", "URL to read pods from, too: https://, http:// or unix:///path/of/socket:/path (default none)")
	flags.StringVar(&f.nodeName, "node-name", "", "name of the node (default the host's name)")
	flags.IntVar(&f.apiPort, "api-port", node.DefaultAPIPort, "port of the Kubernetes API, 0 for any free one")
	flags.StringSliceVar(&f.bindAddress, "bind-address", nil, "addresses of this machine where the API is to be reached from other machines, 0.0.0.0 for all of IPv4, :: for all (default none: loopback and pods)")
	flags.StringSliceVar(&f.apiNames, "api-name", nil, "more names and addresses by which other machines reach the API, for its certificate")
	flags.IntVar(&f.kubeletPort, "kubelet-port", node.DefaultKubeletPort, "port of the kubelet's API, 0 for any free one")
	flags.StringVar(&f.runtime, "container-runtime-endpoint", "", "socket of a runtime that is there already, such as unix:///run/containerd/containerd.sock (default a private containerd)")
	flags.StringVar(&f.podCIDR, "pod-cidr", "", "subnet of the pods' addresses, such as 10.99.0.0/24 (default a free /24, chosen once)")
	flags.StringVar(&f.providers, "image-credential-provider-config", "", "file or folder that says which programs are asked for credentials of images, as upstream's CredentialProviderConfig (default none)")
	flags.StringVar(&f.providerBin, "image-credential-provider-bin-dir", "", "folder of those programs (default none)")
}

// settings returns the file's settings with the flags that were given on top.
func (f *upFlags) settings(cmd *cobra.Command, g *global) (node.Config, error) {
	var cfg node.Config
	if f.config != "" {
		var err error
		if cfg, err = node.LoadConfig(f.config); err != nil {
			return cfg, err
		}
	}
	given := cmd.Flags().Changed
	if given("root-dir") || cfg.RootDir == "" {
		cfg.RootDir = g.rootDir
	}
	if given("manifest-dir") {
		cfg.ManifestDir = f.manifestDir
	}
	if given("manifest-url") {
		cfg.ManifestURL.URL = f.manifestURL
	}
	if given("node-name") {
		cfg.NodeName = f.nodeName
	}
	if given("api-port") {
		cfg.APIPort = &f.apiPort
	}
	if given("bind-address") {
		cfg.BindAddress = f.bindAddress
	}
	if given("api-name") {
		cfg.APINames = f.apiNames
	}
	if given("kubelet-port") {
		cfg.KubeletPort = &f.kubeletPort
	}
	if given("container-runtime-endpoint") {
		cfg.ContainerRuntimeEndpoint = f.runtime
	}
	if given("pod-cidr") {
		cfg.PodCIDR = f.podCIDR
	}
	if given("image-credential-provider-config") {
		cfg.ImageCredentialProviderConfig = f.providers
	}
	if given("image-credential-provider-bin-dir") {
		cfg.ImageCredentialProviderBinDir = f.providerBin
	}
	return cfg, nil
}

// runNode runs the node in this process until a signal or "holdfast down".
func runNode(cmd *cobra.Command, cfg node.Config, f *upFlags) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	level := slog.LevelInfo
	if f.verbose {
		level = slog.LevelDebug
	}
	out := cmd.OutOrStdout()
	cfg.Log = logging.New(cmd.ErrOrStderr(), level)
	start := time.Now()
	cfg.Progress = func(step string) {
		fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(start).Seconds(), step)
	}
	cfg, err := cfg.Complete()
	if err != nil {
		return err
	}
	cfg.Ready = func(in *instance.Instance) {
		if !f.detached { // else the process in the foreground says it
			printWelcome(out, in, cfg.ManifestDir, time.Since(start))
		}
	}
	if f.detached {
		cfg.LogFile = logPath(cfg.RootDir)
	}
	return node.Run(ctx, cfg)
}

// printWelcome says what to try next.
func printWelcome(w io.Writer, in *instance.Instance, manifestDir string, took time.Duration) {
	flag := rootDirFlag(in)
	fmt.Fprintf(w, `
The node is ready, after %.1f s.

  Put pods here   %s
  Kubeconfig      %s

Try:
  cp examples/web.yaml %s
  holdfast%s kubectl get pods -A
  holdfast status%s

`, took.Seconds(), manifestDir, in.Kubeconfig(), shellWord(manifestDir), flag, flag)
}
