package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/node"
)

func newRestore(g *global) *cobra.Command {
	var empty, newIdentity bool
	cmd := &cobra.Command{
		Use:   "restore (FILE | --empty)",
		Short: "Put a backup into the root folder of a node that does not run",
		Long: `Puts back what "holdfast backup" wrote, into an empty root folder or in place of
what a stopped node has. Everything is read and compared with its checksums
first; then all of it is replaced, or, if that is interrupted before, nothing.
What was replaced is kept beside it, in replaced-TIME.

A root folder that has an identity keeps it; an empty one takes the backup's,
or a new one with --new-identity, for a second node on the same machine.

--empty takes no backup: it moves a damaged store away, and the next start makes
an empty one, with the objects of the manifest folder.`,
		Example: "  holdfast restore holdfast-3f9a1c-20270102T150405Z.tar.gz\n" +
			"  holdfast restore --root-dir /srv/second --new-identity node.tar.gz\n" +
			"  holdfast restore --empty",
		Args: func(_ *cobra.Command, args []string) error {
			if empty == (len(args) == 1) || len(args) > 1 {
				return errors.New("name one backup, or give --empty")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.NeedRoot(cmd); err != nil {
				return err
			}
			if empty {
				return emptyStore(cmd, g)
			}
			out := cmd.OutOrStdout()
			done, err := node.Restore(cmd.Context(), node.Restoration{
				RootDir: g.rootDir, File: args[0], NewIdentity: newIdentity,
				Progress: func(s string) { fmt.Fprintln(out, s) },
			})
			if err != nil {
				return fmt.Errorf("restore the node in %s: %w", g.rootDir, err)
			}
			printRestored(out, g, done)
			return nil
		},
	}
	cmd.Flags().BoolVar(&empty, "empty", false, "move the store away and begin with an empty one")
	cmd.Flags().BoolVar(&newIdentity, "new-identity", false, "do not take the backup's ID and subnet; the first start chooses others")
	cmd.MarkFlagsMutuallyExclusive("empty", "new-identity")
	return cmd
}

func emptyStore(cmd *cobra.Command, g *global) error {
	in, err := g.open()
	if err != nil {
		return err
	}
	aside, err := node.EmptyStore(in)
	if err != nil {
		return fmt.Errorf("empty the store of %s: %w", in.Root, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "The store is empty. The former one is in %s.\n%s", aside, upHint(in.Root, ""))
	return nil
}

func printRestored(out io.Writer, g *global, done node.Restored) {
	i := done.Index
	fmt.Fprintf(out, "Node %s is restored, as of %s.\n", i.Node, i.Created.Local().Format("2006-01-02 15:04:05"))
	if done.Aside != "" {
		fmt.Fprintf(out, "What it replaced is in %s; remove that when all is well.\n", done.Aside)
	}
	if i.ManifestDir != (&instance.Instance{Root: i.RootDir}).ManifestDir() {
		fmt.Fprintf(out, "Its manifests came from %s and are in %s now: that is where \"holdfast up\" reads unless --manifest-dir says otherwise.\n",
			i.ManifestDir, (&instance.Instance{Root: g.rootDir}).ManifestDir())
	}
	fmt.Fprint(out, upHint(g.rootDir, i.Node))
}

// upHint says how to start the node.
func upHint(root, name string) string {
	command := "holdfast up --detach" + rootDirFlag(&instance.Instance{Root: root})
	if name != "" {
		command += " --node-name " + shellWord(name)
	}
	return "Start it with: " + command + "\n"
}
