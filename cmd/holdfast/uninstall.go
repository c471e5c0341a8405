package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/node"
)

func newUninstall(g *global) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the node and remove everything that it made on this machine",
		Long: `Stops the node and its pods, then removes what the node made: containers and
images, volumes, the store, credentials, logs, its bridge, firewall chains and
cgroups. It keeps your manifests, and says so.`,
		Example: "  holdfast uninstall\n  holdfast uninstall --yes --root-dir /srv/node",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := g.open()
			if err == nil {
				err = cli.NeedRoot(cmd)
			}
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if !yes {
				fmt.Fprintf(out, "This stops all pods of the node in %s and removes their volumes, images, logs and the API's objects.\nManifests are kept. Type \"yes\" to go on: ", in.Root)
				answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
				if strings.TrimSpace(answer) != "yes" {
					return errors.New("nothing was removed (--yes goes on without a question)")
				}
			}
			step := func(s string) { fmt.Fprintln(out, s) }
			if err := stopNode(cmd.Context(), in, step); err != nil {
				return err
			}
			kept, notes, err := node.Uninstall(cmd.Context(), in, step)
			if err != nil {
				return fmt.Errorf("remove the node in %s: %w", in.Root, err)
			}
			step("The node is gone.")
			for _, path := range kept {
				step("Kept: " + path)
			}
			for _, note := range notes {
				step("Note: " + note)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
