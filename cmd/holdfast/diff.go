package main

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/node"
)

func newDiff(g *global) *cobra.Command {
	var format cli.Format
	cmd := &cobra.Command{
		Use:   "diff [FOLDER|FILE...]",
		Short: "Show what manifests would change on the node",
		Long: `Compares manifests with what is in force on the node, and changes nothing. Each
object that would be added, updated or removed is shown, with the fields that
change and what that does to its pod: a pod from a file whose content changes is
another pod, so the old one ends before the new one starts, unless its UID is
written. Values of Secrets are masked.

A folder stands for the whole manifest folder: what is not in it goes, and what
stands in a broken file there stays. Files take the place of the documents that
define the same objects, and nothing else is removed. With neither, it is the
node's manifest folder as it is now, so what is shown is what is written there
and not in force.

What is in force is read from the root folder, so that the node need not run. If it
does, a new pod is told whose name a pod of another source has.

The exit code is 0 if there is no difference, 1 if there is one, or something
that would not be taken, and 2 if it could not be found out.`,
		Example: `  holdfast diff                     # what is written and not in force
  holdfast diff ~/new-manifests
  holdfast diff web.yaml
  holdfast diff -o json | jq '.changes[] | select(.action == "remove")'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := g.open()
			if err != nil {
				return &exitError{exitUsage, err}
			}
			report, err := fetchReport(cmd.Context(), in)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			found, err := node.Diff(in, args, report.Sources)
			if err == nil {
				err = cli.PrintDiff(cmd.OutOrStdout(), found, format)
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if !found.None() {
				return &exitError{code: exitFailed}
			}
			return nil
		},
		ValidArgsFunction: cli.CompleteManifests,
	}
	cmd.Flags().VarP(&format, "output", "o", "output format")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	return cmd
}
