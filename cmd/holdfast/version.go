package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/version"
)

func newVersion() *cobra.Command {
	var format cli.Format
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of Holdfast and of the Kubernetes API inside",
		Example: "  holdfast version\n  holdfast version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := struct {
				Holdfast   string `json:"holdfast"`
				Kubernetes string `json:"kubernetes"`
				Go         string `json:"go"`
				Platform   string `json:"platform"`
			}{version.Version, version.Kubernetes, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if done, err := format.Data(cmd.OutOrStdout(), info); done {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Holdfast    %s\nKubernetes  %s\n", info.Holdfast, info.Kubernetes)
			if format == cli.Wide {
				fmt.Fprintf(cmd.OutOrStdout(), "Go          %s\nPlatform    %s\n", info.Go, info.Platform)
			}
			return nil
		},
	}
	cmd.Flags().VarP(&format, "output", "o", "output format")
	return cmd
}
