package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/control"
)

func newSources(g *global) *cobra.Command {
	var format cli.Format
	cmd := &cobra.Command{
		Use:   "sources",
		Short: "Show where the node's pods come from",
		Long: `Shows each source of pods: whether it answers, when it was last good, what it
delivers and from which file and line, what is wrong with which document, and
which files are ignored and why.

A source that does not answer takes nothing away: what it last said stays in
force. Its states are ok; failing, which means that it answered before and does
not now; restored, that it has not answered since the node started and what was
in force before is known from the disk; and silent, that it never has.

The exit code is 0 if every source answers and nothing is wrong, 4 if not, and
3 if the node is not running; then what the disk knows is shown.`,
		Example: `  holdfast sources
  holdfast sources -o wide
  holdfast sources -o json | jq '.[].faults[]'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := g.open()
			if err != nil {
				return &exitError{exitNotRunning, err}
			}
			report, err := fetchReport(cmd.Context(), in)
			if err != nil {
				return err
			}
			if err := cli.PrintSources(cmd.OutOrStdout(), report.Sources, format, time.Now()); err != nil {
				return err
			}
			switch {
			case report.PID == 0:
				return &exitError{code: exitNotRunning}
			case slices.ContainsFunc(report.Sources, control.Source.Wrong):
				return &exitError{code: exitFaults}
			default:
				return nil
			}
		},
	}
	cmd.Flags().VarP(&format, "output", "o", "output format")
	return cmd
}
