package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/figures"
)

// topFlags are the flags of all commands of `holdfast top`.
type topFlags struct {
	kubeconfig, context string
	node                string
	namespace           string
	all                 bool
	sortBy              string
	watch               bool
	interval            time.Duration
	format              cli.Format

	nodes   bool // the argument names a node
	volumes bool // it is asked how they were measured
}

// showReport writes a report for people or programs, sorted.
type showReport func(io.Writer, *figures.Report) error

func newTop(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what nodes, pods and volumes use",
		Long: `Shows what nodes, pods and volumes use now, as their kubelets say. Nothing has to be
installed for it.

It asks this machine's node, or the cluster that --kubeconfig or the environment
variable KUBECONFIG names: there each node through the API, which takes the
right to "get" of "nodes/proxy".`,
		Example: `  holdfast top nodes
  holdfast top pods -A --sort-by memory
  holdfast top volumes -A --sort-by full --watch`,
		Args: cli.NoCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTopNodes(g), newTopPods(g), newTopVolumes(g))
	return cmd
}

func newTopNodes(g *global) *cobra.Command {
	f := topFlags{nodes: true}
	cmd := &cobra.Command{
		Use:   "nodes [NAME]",
		Short: "Show what nodes use",
		Long: `Shows what each node uses: processors, also in percent of what it has for pods;
memory that cannot be had back at once; and the disk of its kubelet's folder.

Exit code 1 means that a node did not answer; the others are shown.`,
		Example: `  holdfast top nodes
  holdfast top nodes --sort-by disk -o wide
  holdfast top nodes -o json | jq '.[].memory.workingSetBytes'`,
		Aliases: []string{"node"},
	}
	f.add(g, cmd, figures.NodeOrders, func(w io.Writer, r *figures.Report) error {
		figures.SortNodes(r.Nodes, f.sortBy)
		return figures.PrintNodes(w, r.Nodes, f.format)
	})
	return cmd
}

func newTopPods(g *global) *cobra.Command {
	var f topFlags
	var containers bool
	cmd := &cobra.Command{
		Use:   "pods [NAME]",
		Short: "Show what pods use",
		Long: `Shows what each pod uses: processors; memory that cannot be had back at once; and
storage, which is what it has on the node's disk: its containers' layers and
logs, and volumes that are its own.

Exit code 1 means that a node did not answer; the pods of others are shown.`,
		Example: `  holdfast top pods
  holdfast top pods -A --sort-by cpu --watch
  holdfast top pods web-edge-1 --containers
  holdfast top pods -n web -o json | jq '.[].cpu.usageNanoCores'`,
		Aliases: []string{"pod"},
	}
	f.add(g, cmd, figures.PodOrders, func(w io.Writer, r *figures.Report) error {
		if containers {
			all := figures.Containers(r.Pods)
			figures.SortContainers(all, f.sortBy)
			return figures.PrintContainers(w, all, f.format)
		}
		figures.SortPods(r.Pods, f.sortBy)
		return figures.PrintPods(w, r.Pods, f.format)
	})
	f.addNamespace(cmd)
	cmd.Flags().BoolVar(&containers, "containers", false, "show each container; its storage is its writable layer and its logs")
	return cmd
}

func newTopVolumes(g *global) *cobra.Command {
	f := topFlags{volumes: true}
	cmd := &cobra.Command{
		Use:   "volumes [POD]",
		Short: "Show what volumes take",
		Long: `Shows what each volume of each pod takes. A folder that shares a disk with others
shows what is in it; its size is the disk's unless it has a limit. FULL is what
is used, of that and what is left, as df has it. The method says how it was
measured: quota, the filesystem counts it; filesystem, it is one of its own;
walk, its files were counted; device, only its size is known; driver, its CSI
driver says so. The age is the figures' own; "stale" means that the last try to
measure it failed or hangs. Kind and method are not known of nodes with another
kubelet.

Exit code 1 means that a node did not answer; the volumes of others are shown.`,
		Example: `  holdfast top volumes -A
  holdfast top volumes db-0
  holdfast top volumes -A --sort-by full --watch
  holdfast top volumes -A -o json | jq '.[] | [.podRef.name, .name, .usedBytes, .inodesUsed]'`,
		Aliases: []string{"volume"},
	}
	f.add(g, cmd, figures.VolumeOrders, func(w io.Writer, r *figures.Report) error {
		figures.SortVolumes(r.Volumes, f.sortBy)
		return figures.PrintVolumes(w, r.Volumes, f.format, time.Now())
	})
	f.addNamespace(cmd)
	return cmd
}

// add makes cmd ask and show, with the flags that every table has.
func (f *topFlags) add(g *global, cmd *cobra.Command, orders []string, show showReport) {
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster to ask (default the environment variable KUBECONFIG, else this machine's node)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig to use")
	if !f.nodes {
		flags.StringVar(&f.node, "node", "", "ask only this node")
	}
	flags.StringVar(&f.sortBy, "sort-by", orders[0], "what to sort by: "+strings.Join(orders, ", "))
	flags.BoolVarP(&f.watch, "watch", "w", false, "show it again and again until interrupted")
	flags.DurationVar(&f.interval, "interval", 10*time.Second, "time between two looks of --watch; kubelets have new figures every ten seconds")
	flags.VarP(&f.format, "output", "o", "output format")
	complete := func(flag string, words ...string) {
		// The flag is there: it cannot fail.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	complete("sort-by", orders...)
	complete("output", string(cli.JSON), string(cli.YAML), string(cli.Wide))
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := figures.CheckOrder(f.sortBy, orders); err != nil {
			return err
		}
		if f.interval <= 0 {
			return fmt.Errorf("--interval %v: it must be more than nothing", f.interval)
		}
		return f.run(g, cmd, args, show)
	}
}

// addNamespace adds those of tables of pods.
func (f *topFlags) addNamespace(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "namespace of the pods (default the kubeconfig's)")
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "pods of all namespaces")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

func (f *topFlags) run(g *global, cmd *cobra.Command, args []string, show showReport) error {
	config, namespace, err := f.config(g)
	if err != nil {
		return err
	}
	config.QPS = -1 // each node is asked once or twice
	api, err := corev1.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of the API: %w", err)
	}
	source := figures.New(api)
	scope := figures.Scope{Node: f.node, Volumes: f.volumes}
	if !f.all && !f.nodes {
		scope.Namespace = namespace
	}
	switch {
	case len(args) > 0 && f.nodes:
		scope.Node = args[0]
	case len(args) > 0:
		scope.Pod = args[0]
	}
	look := func(w io.Writer) error {
		report, err := source.Report(cmd.Context(), scope)
		if err != nil {
			return err
		}
		err = show(w, report)
		if err == nil && len(report.Pods) == 0 && f.format != cli.JSON && f.format != cli.YAML {
			_, err = io.WriteString(w, whyNone(scope))
		}
		return errors.Join(append([]error{err}, report.Failed...)...)
	}
	if f.watch {
		return f.again(cmd, look)
	}
	return look(cmd.OutOrStdout())
}

// config returns how the API is reached, and in which namespace pods are meant: the
// cluster that the user names, else this machine's node.
func (f *topFlags) config(g *global) (*rest.Config, string, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: f.kubeconfig}
	if f.kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
		rules = clientcmd.NewDefaultClientConfigLoadingRules()
	} else if f.kubeconfig == "" {
		in, err := g.open()
		if err != nil {
			return nil, "", err
		}
		if _, running := in.Running(); !running {
			return nil, "", &exitError{exitNotRunning, fmt.Errorf("the node in %s is not running: start it with \"holdfast up --detach%s\", or name a cluster with --kubeconfig", in.Root, rootDirFlag(in))}
		}
		rules.ExplicitPath = in.Kubeconfig()
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context, Context: clientcmdapi.Context{Namespace: f.namespace}}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err) && rules.ExplicitPath == "":
		return nil, "", fmt.Errorf("kubeconfig: no cluster in %s, which KUBECONFIG names: correct it, or unset it for this machine's node", strings.Join(rules.GetLoadingPrecedence(), ", "))
	case clientcmd.IsEmptyConfig(err):
		return nil, "", fmt.Errorf("kubeconfig: no cluster in %s", rules.ExplicitPath)
	case err != nil:
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	return config, namespace, nil
}

// whyNone says why there may be no pods in a report.
func whyNone(scope figures.Scope) string {
	switch {
	case scope.Namespace == "":
		return ""
	case scope.Pod != "":
		return "If the pod runs, figures of it come within ten seconds.\n"
	}
	return fmt.Sprintf("Only namespace %s was looked at: -A shows all.\n", scope.Namespace)
}

// clearScreen has a terminal begin a page anew.
const clearScreen = "\x1b[H\x1b[2J\x1b[3J"

// again shows it each interval until the command's context is done. Trouble is shown and
// tried again, but for the first time: then the command is wrong more likely than the
// cluster.
func (f *topFlags) again(cmd *cobra.Command, look func(io.Writer) error) error {
	out, terminal := cmd.OutOrStdout(), isTerminal(cmd.OutOrStdout())
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	for first := true; ; first = false {
		var page strings.Builder // so that a page does not flicker
		err := look(&page)
		if err != nil && page.Len() == 0 && first {
			return err
		}
		if terminal {
			fmt.Fprintf(out, "%s%s\n\n", clearScreen, time.Now().Format(time.DateTime))
		}
		if _, err := io.WriteString(out, page.String()); err != nil {
			return err // nobody reads any more
		}
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "Error: %v\n", err)
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-tick.C:
		}
		if !terminal && f.format != cli.JSON {
			fmt.Fprintln(out, f.separator())
		}
	}
}

// separator stands between two looks in a file.
func (f *topFlags) separator() string {
	if f.format == cli.YAML {
		return "---"
	}
	return ""
}

// isTerminal reports whether what is written to w is seen at once.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
