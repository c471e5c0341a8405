// Command holdfast is a Kubernetes node in one binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubeletcommand"
)

func main() {
	os.Exit(run(context.Background(), os.Args))
}

// Exit codes.
const (
	exitFailed     = 1
	exitUsage      = 2 // of check and diff, whose 1 is an answer: they could not look
	exitNotRunning = 3 // of status and sources: as systemctl's for a unit that does not run
	exitFaults     = 4 // of status and sources: the node runs and something is wrong
)

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error // nil: all is said already
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func run(ctx context.Context, args []string) int {
	switch name := filepath.Base(args[0]); name {
	case "kubectl", "kubelet": // a link of that name in the path
		args = append([]string{args[0], name}, args[1:]...)
	}
	cmd := newCommand()
	cmd.SetArgs(args[1:])
	err := cmd.ExecuteContext(ctx)
	code := exitCode(err)
	if e, ok := errors.AsType[*exitError](err); ok {
		err = e.err
	}
	if err != nil && !errors.Is(err, kubeletcommand.ErrSaid) {
		fmt.Fprintf(cmd.ErrOrStderr(), "Error: %v\n", err)
	}
	return code
}

// exitCode returns the exit code of a command that ended with err.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return exitFailed
}

// global holds the flags that every command shares.
type global struct {
	rootDir string
}

func newCommand() *cobra.Command {
	g := &global{}
	cmd := &cobra.Command{
		Use:   "holdfast",
		Short: "A Kubernetes node in one binary",
		Long: `Holdfast runs pods on this machine from a folder of manifests, with real
containers and the real Kubernetes API, and no control plane to install.`,
		Example: `  holdfast up --detach                     # start a node
  cp web.yaml /var/lib/holdfast/manifests  # run a pod
  holdfast status                          # what runs, and what is wrong
  holdfast kubectl get pods -A             # the Kubernetes API, as anywhere`,
		TraverseChildren: true, // flags before "kubectl" are ours
		SilenceUsage:     true,
		SilenceErrors:    true,
		Args:             cli.NoCommand,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if g.rootDir == "" { // of a variable that is not set, most likely
				return errors.New("--root-dir is empty: name the node's folder, or leave the flag out")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	root := os.Getenv("HOLDFAST_ROOT_DIR")
	if root == "" {
		root = instance.DefaultRoot
	}
	cmd.PersistentFlags().StringVar(&g.rootDir, "root-dir", root, "folder that holds everything of this node; the default may be set with HOLDFAST_ROOT_DIR")
	cmd.AddCommand(newUp(g), newDown(g), newStatus(g), newTop(g), newSources(g), newDiff(g), newCheck(), newDoctor(g), newBackup(g), newRestore(g), newUninstall(g), newRun(g), newExportImage(), newKubectl(g), newKubeconfig(g), kubeletcommand.New("holdfast kubelet"), newVersion())
	return cmd
}

// open returns the instance that the command is about.
func (g *global) open() (*instance.Instance, error) {
	return instance.Open(g.rootDir)
}

// rootDirFlag returns what to add to a command in a hint so that it is about
// the same instance.
func rootDirFlag(in *instance.Instance) string {
	if in.Root == instance.DefaultRoot {
		return ""
	}
	return " --root-dir " + shellWord(in.Root)
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shellWord returns s as one word of a shell's command line.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
