package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// NoCommand are the arguments of a command that has others below it: it says that a
// word is no command, and which one is near.
func NoCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf(": did you mean %q?", near[0])
	}
	return fmt.Errorf("%q is no command of %s%s (see \"%s --help\")", args[0], cmd.Name(), hint, cmd.CommandPath())
}

// NeedRoot refuses early what would fail half-way for anybody but root.
func NeedRoot(cmd *cobra.Command) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%q needs root, for containers, mounts and the network: run it with sudo", cmd.CommandPath())
	}
	return nil
}

// CompleteManifests completes an argument with files that may hold objects.
func CompleteManifests(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}
