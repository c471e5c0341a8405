// Package kubeletcommand is the command that runs this machine as a node of a cluster,
// for the programs that have it: holdfast, and holdfast-kubelet, which has nothing else
// in it and so takes 40 MiB less memory.
package kubeletcommand

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/clusternode"
	"github.com/holdfast-dev/holdfast/internal/kubeletconfig"
	"github.com/holdfast-dev/holdfast/internal/kubelethost"
	"github.com/holdfast-dev/holdfast/internal/logging"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// ErrSaid is returned by a command that has printed what is wrong.
var ErrSaid = errors.New("what is wrong was printed")

// New returns the command. Its words in examples are as typed, such as "holdfast
// kubelet"; the last of them is its name.
func New(typed string) *cobra.Command {
	flags := new(kubeletconfig.Flags)
	cmd := &cobra.Command{
		Use:   typed[strings.LastIndex(typed, " ")+1:],
		Short: "Run this machine as a node of a Kubernetes cluster",
		Long: `Runs the node agent of a Kubernetes cluster in the place of the upstream kubelet:
with its configuration file, its flags and its ports, on the container runtime of
this machine. It stays in the foreground; SIGTERM leaves the pods running.`,
		Example: "  " + typed + ` --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf
  ` + typed + ` config validate /var/lib/kubelet/config.yaml`,
		Args: cli.NoCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := kubeletconfig.Load(flags.Sources())
			if err == nil {
				err = cli.NeedRoot(cmd)
			}
			if err != nil {
				return err
			}
			warnOf(cmd, loaded)
			return runKubelet(cmd, flags, loaded)
		},
	}
	flags.AddTo(cmd.PersistentFlags())
	// kubeadm reads the version so, and compares it with the cluster's.
	cmd.Version = version.Kubernetes
	cmd.SetVersionTemplate("Kubernetes {{.Version}}\n")
	cmd.AddCommand(newConfig(typed+" config", flags))
	return cmd
}

// runKubelet runs the node in this process until a signal.
func runKubelet(cmd *cobra.Command, flags *kubeletconfig.Flags, loaded *kubeletconfig.Loaded) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	k := &loaded.Kubelet
	var shown slog.LevelVar
	shown.Set(level(int(k.Logging.Verbosity)))
	newLog := logging.New
	if k.Logging.Format == "json" {
		newLog = logging.NewJSON
	}
	log := newLog(cmd.ErrOrStderr(), &shown)
	if c := flags.CloudProvider; c != "" && c != "external" {
		return fmt.Errorf("--cloud-provider %q is not known: write external, or leave it out", c)
	}
	if err := settle(k, log); err != nil {
		return err
	}
	name, err := nodeName(flags.HostnameOverride)
	if err != nil {
		return err
	}
	root, err := filepath.Abs(flags.RootDir)
	if err != nil {
		return fmt.Errorf("--root-dir: %w", err)
	}
	node, err := clusternode.New(ctx, clusternode.Config{
		Kubelet: k, Kubeconfig: flags.Kubeconfig, Bootstrap: flags.BootstrapKubeconfig, Root: root, CertDir: flags.CertDir, Name: name, NodeIP: flags.NodeIP,
		Labels: flags.NodeLabels, ExternalCloud: flags.CloudProvider == "external",
		ProviderConfig: flags.CredentialProviderConfig, ProviderBinDir: flags.CredentialProviderBinDir,
		Flags: given(cmd), SetVerbosity: verbosity(&shown), Log: log,
	})
	if err != nil {
		return err
	}
	return node.Run(ctx)
}

// settle sees whether the machine is one for the configuration, and gives this
// process what that says.
func settle(k *v1beta1.KubeletConfiguration, log *slog.Logger) error {
	host, err := kubelethost.Read()
	if err == nil {
		err = host.Refuses(k)
	}
	if err != nil {
		return err
	}
	for _, warning := range host.Warnings() {
		log.Warn("the machine is not as it should be", "reason", warning)
	}
	for _, err := range kubelethost.Settle(k) {
		log.Warn("the process cannot have what is configured", "err", err)
	}
	return nil
}

// level is what is logged at a verbosity as upstream's: decisions from 4 on.
func level(verbosity int) slog.Level {
	if verbosity >= 4 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// verbosity returns what changes a level to a verbosity that is written as a number.
func verbosity(shown *slog.LevelVar) func(string) error {
	return func(text string) error {
		v, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return fmt.Errorf("verbosity %q is no number, such as 4", text)
		}
		shown.Set(level(int(v)))
		return nil
	}
}

// given are the flags of a command and their values, by name.
func given(cmd *cobra.Command) map[string]string {
	all := map[string]string{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { all[f.Name] = f.Value.String() })
	return all
}

// nodeName is the Node's: what is given, or the machine's, as upstream writes both.
func nodeName(override string) (string, error) {
	name := override
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("name of the node: %w (name one with --hostname-override)", err)
		}
	}
	if name = strings.ToLower(strings.TrimSpace(name)); name == "" {
		return "", fmt.Errorf("name of the node: %q is empty (name one with --hostname-override)", override)
	}
	return name, nil
}
