package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/node"
)

func newStatus(g *global) *cobra.Command {
	var format cli.Format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the node runs and what is wrong with it",
		Long: `Shows the node's parts, its pods, and everything that is wrong, with object,
file and line.

The exit code is 0 if the node is ready and nothing is wrong, 4 if something
is, and 3 if the node is not running.`,
		Example: "  holdfast status\n  holdfast status -o wide\n  holdfast status -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := g.open()
			if err != nil {
				return &exitError{exitNotRunning, err}
			}
			report, err := fetchReport(cmd.Context(), in)
			if err != nil {
				return err
			}
			if err := cli.PrintReport(cmd.OutOrStdout(), report, format, time.Now()); err != nil {
				return err
			}
			switch {
			case report.PID == 0:
				return &exitError{code: exitNotRunning}
			case len(report.Faults) > 0 || !report.Ready:
				return &exitError{code: exitFaults}
			default:
				return nil
			}
		},
	}
	cmd.Flags().VarP(&format, "output", "o", "output format")
	return cmd
}

// fetchReport asks the node for its report, or makes the one of a node that
// does not run.
func fetchReport(ctx context.Context, in *instance.Instance) (*control.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	report, err := control.NewClient(in.ControlSocket()).Report(ctx)
	if !errors.Is(err, control.ErrNotRunning) {
		return report, err
	}
	if report, err = node.Offline(in); err != nil {
		return nil, err
	}
	for i := range report.Faults {
		report.Faults[i].Hint = `start it with "holdfast up --detach` + rootDirFlag(in) + `"`
	}
	return report, nil
}
