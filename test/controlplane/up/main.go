// Command up runs a real control plane by hand until it is interrupted, and
// prints what to try. "make controlplane" builds what it needs and runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/holdfast-dev/holdfast/test/controlplane"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var cfg controlplane.Config
	flag.StringVar(&cfg.Dir, "dir", "", "folder of everything: store, certificates, kubeconfigs, logs; kept, and used again at the next start (default: a new one, removed in the end)")
	flag.StringVar(&cfg.Program, "program", "bin/tools/controlplane", "the file that holds the components")
	flag.StringVar(&cfg.Address, "address", "", "an IPv4 address of this machine that other network namespaces or machines reach; the API server then listens on every address (default: loopback alone)")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("%q is no flag (-help lists them)", flag.Arg(0))
	}

	var err error
	if cfg.Program, err = filepath.Abs(cfg.Program); err != nil {
		return err
	}
	if cfg.Dir == "" {
		if cfg.Dir, err = os.MkdirTemp("", "controlplane-"); err != nil {
			return err
		}
		defer os.RemoveAll(cfg.Dir) //nolint:errcheck // a temporary folder, at the end of the process
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return err
	}
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := controlplane.New(cfg)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "Starting etcd, kube-apiserver, kube-controller-manager and kube-scheduler (logs in "+filepath.Join(cfg.Dir, "logs")+")")
	go func() {
		select {
		case <-c.Ready():
			fmt.Fprint(os.Stdout, welcome(c))
		case <-ctx.Done():
		}
	}()
	if err := c.Run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func welcome(c *controlplane.Cluster) string {
	return fmt.Sprintf(`
The control plane is ready at %s. Ctrl-C ends it.

    export KUBECONFIG=%s
    bin/tools/kubectl get --raw '/readyz?verbose'
    bin/tools/kubectl create deployment web --image=example.com/web && bin/tools/kubectl get deployments,replicasets,pods
    bin/tools/kubectl --kubeconfig %s auth whoami

The last one is what a new kubelet joins with; its bootstrap token is %s.
`, c.URL(), c.Kubeconfig(), c.BootstrapKubeconfig(), c.BootstrapToken())
}
