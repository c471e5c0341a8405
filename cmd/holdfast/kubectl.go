package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// newKubectl returns kubectl itself, pointed at this node unless the user
// names another cluster.
func newKubectl(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [ARGUMENTS]",
		Short: "kubectl, for this node",
		Long: `Runs the kubectl inside this binary with the administrator's credentials for
this node, unless --kubeconfig, --server or the environment variable KUBECONFIG names another cluster. Flags of
holdfast itself go before "kubectl".`,
		Example: `  holdfast kubectl get pods -A
  holdfast kubectl logs -f web-edge-1
  holdfast --root-dir /srv/node kubectl describe node`,
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if os.Getenv("KUBECONFIG") == "" && !namesCluster(args) {
				in, err := g.open()
				if err != nil {
					return err
				}
				if _, running := in.Running(); !running { // help and the like work all the same
					fmt.Fprintf(c.ErrOrStderr(), "Note: the node in %s is not running: start it with \"holdfast up --detach%s\"\n", in.Root, rootDirFlag(in))
				}
				if err := os.Setenv("KUBECONFIG", in.Kubeconfig()); err != nil {
					return err
				}
			}
			return runKubectl(c.Context(), args)
		},
	}
}

// runKubectl runs kubectl's own command tree as its main function does: it
// reads os.Args, to set up logging early and to find its plugins, and ends the
// process itself if something goes wrong, with kubectl's words and exit code.
func runKubectl(ctx context.Context, args []string) error {
	os.Args = append([]string{"kubectl"}, args...)
	if _, err := logs.GlogSetter(cmd.GetLogVerbosity(os.Args)); err != nil {
		return fmt.Errorf("set kubectl's verbosity: %w", err)
	}
	kubectl := cmd.NewDefaultKubectlCommand()
	kubectl.SetContext(ctx)
	if err := cli.RunNoErrOutput(kubectl); err != nil {
		util.CheckErr(err)
	}
	return nil
}

// namesCluster reports whether kubectl's own arguments say which cluster.
func namesCluster(args []string) bool {
	for _, arg := range args {
		for _, flag := range []string{"--kubeconfig", "--server", "-s"} {
			if arg == flag || strings.HasPrefix(arg, flag+"=") {
				return true
			}
		}
	}
	return false
}
