package main

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/node"
)

func newCheck() *cobra.Command {
	var (
		nodeName string
		format   cli.Format
	)
	cmd := &cobra.Command{
		Use:   "check FILE|FOLDER|- ...",
		Short: "Check manifests without a node",
		Long: `Reads manifests as a node would that had them in its manifest folder, and
prints what is wrong: one line a fault, with file, line, object and field. It
needs neither a node nor root, and changes nothing.

A folder is read as a manifest folder is: with the folders in it, and without
files of other names, which are listed. Two documents for one object are a
fault, wherever they stand in what was given. A file that is named must be one
that a folder would take. "-" is standard input.

What only a machine or a running node can tell is not checked: whether there is
room for the pods, whether their images and what they refer to exist, and
whether the kernel knows AppArmor.

The exit code is 0 if nothing is wrong, 1 if something is, and 2 if a path
could not be read.`,
		Example: `  holdfast check manifests/
  holdfast check web.yaml --node-name edge-1
  helm template chart | holdfast check -
  holdfast check -o json manifests/ | jq -r '.faults[].file'`,
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg := node.CheckConfig{NodeName: nodeName}
			cfg.Paths, cfg.Stdin = args, nil
			if slices.Contains(args, "-") {
				text, err := readInput(cmd.InOrStdin(), "-")
				if err != nil {
					return &exitError{exitUsage, err}
				}
				cfg.Stdin = append([]byte{}, text...)
				cfg.Paths = slices.DeleteFunc(slices.Clone(args), func(path string) bool { return path == "-" })
			}
			found, err := node.Check(cfg)
			if err == nil {
				err = cli.PrintCheck(cmd.OutOrStdout(), found, format)
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if len(found.Faults) > 0 {
				return &exitError{code: exitFailed}
			}
			return nil
		},
		ValidArgsFunction: cli.CompleteManifests,
	}
	cmd.Flags().StringVar(&nodeName, "node-name", "", "name of the node that they are for (default the host's name)")
	cmd.Flags().VarP(&format, "output", "o", "output format")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	return cmd
}

// usage gives what is wrong with arguments the exit code of a wrong call.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &exitError{exitUsage, errors.New(err.Error() + " (see \"" + cmd.CommandPath() + " --help\")")}
		}
		return nil
	}
}
