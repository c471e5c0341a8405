package kubeletcommand

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/kubeletconfig"
)

// newConfig returns the commands about the configuration that flags, which
// are the kubelet's and are parsed before, lead to.
func newConfig(typed string, flags *kubeletconfig.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a kubelet's configuration, or print what it comes to",
		Long: `Reads the configuration of a kubelet as it would itself: the file, the folder of
drop-ins and the flags. It needs neither a node nor root, and changes nothing.`,
		Example: "  " + typed + ` validate /var/lib/kubelet/config.yaml
  ` + typed + ` print --config /var/lib/kubelet/config.yaml --max-pods 50`,
		Args: cli.NoCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPrint(typed+" print", flags), newValidate(typed+" validate", flags))
	return cmd
}

func newPrint(typed string, flags *kubeletconfig.Flags) *cobra.Command {
	format := cli.YAML
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the configuration that counts",
		Long: `Prints the configuration that the file, the drop-ins and the flags come to, with
every default. It is itself a file for --config. Headers of staticPodURLHeader
are in it as they were written.`,
		Example: "  " + typed + ` --config /var/lib/kubelet/config.yaml
  ` + typed + ` --config-dir /etc/kubernetes/kubelet.conf.d -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := kubeletconfig.Load(flags.Sources())
			if err != nil {
				return err
			}
			warnOf(cmd, loaded)
			done, err := format.Data(cmd.OutOrStdout(), loaded.Kubelet)
			if err == nil && !done {
				err = fmt.Errorf("-o %s: a configuration is printed as yaml or json", format)
			}
			return err
		},
	}
	cmd.Flags().VarP(&format, "output", "o", "output format")
	return cmd
}

func newValidate(typed string, flags *kubeletconfig.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "validate [FILE ...]",
		Short: "Say everything that is wrong with a configuration",
		Long: `Prints what a kubelet would not start with: one line each, with file and line or
flag, the field, what is wrong and what to do. Each file is taken as that of
--config, with the drop-ins and flags that are given.

The exit code is 0 if nothing is wrong, and 1 if something is.`,
		Example: "  " + typed + ` /var/lib/kubelet/config.yaml
  ` + typed + ` --config config.yaml --config-dir conf.d --max-pods 50`,
		RunE: func(cmd *cobra.Command, files []string) error {
			sources := flags.Sources()
			if len(files) == 0 {
				files = []string{sources.File}
			}
			var errs []error
			for _, file := range files {
				sources.File = file
				loaded, err := kubeletconfig.Load(sources)
				if err == nil {
					warnOf(cmd, loaded)
					err = new(kubelet.Config).Configure(&loaded.Kubelet)
				}
				errs = append(errs, err)
			}
			if err := errors.Join(errs...); err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
				return ErrSaid
			}
			return nil
		},
		ValidArgsFunction: cli.CompleteManifests,
	}
}

// warnOf prints what was given and has no effect.
func warnOf(cmd *cobra.Command, loaded *kubeletconfig.Loaded) {
	for _, warning := range loaded.Warnings() {
		fmt.Fprintln(cmd.ErrOrStderr(), "Warning: "+warning)
	}
}
