package main

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/doctor"
	"github.com/holdfast-dev/holdfast/internal/node"
)

func newDoctor(g *global) *cobra.Command {
	var (
		f      upFlags
		format cli.Format
		strict bool
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what keeps a node from running on this machine",
		Long: `Looks at this machine as "holdfast up" with the same flags would use it, and
says what keeps a node from running, what may trouble it, and what to do. It
changes nothing, and may be asked before a node is started or while it runs.

The exit code is 0 if nothing keeps a node from running, and 4 if something
does; with --strict, also if there is a warning.`,
		Example: `  sudo holdfast doctor
  sudo holdfast doctor --config node.yaml
  sudo holdfast doctor -o json | jq '.[] | select(.level == "error")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.settings(cmd, g)
			if err == nil {
				cfg, err = cfg.Complete()
			}
			if err != nil {
				return err
			}
			findings := node.Examine(cmd.Context(), cfg)
			if err := cli.PrintFindings(cmd.OutOrStdout(), findings, format); err != nil {
				return err
			}
			switch worst := doctor.Worst(findings); {
			case worst == doctor.Error, strict && worst == doctor.Warning:
				return &exitError{code: exitFaults}
			default:
				return nil
			}
		},
	}
	f.bindSettings(cmd)
	cmd.Flags().BoolVar(&strict, "strict", false, "fail on warnings too")
	cmd.Flags().VarP(&format, "output", "o", "output format")
	return cmd
}
