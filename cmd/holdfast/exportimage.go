package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/node"
)

func newExportImage() *cobra.Command {
	return &cobra.Command{
		Use:   "export-image pause|demo [FILE]",
		Short: "Write an image that Holdfast brings along as an archive",
		Long: `Writes the pause or the demo image as an OCI archive, to FILE or to standard
output.

The private container runtime has both. A runtime of your own, used with
"holdfast up --container-runtime-endpoint", needs a pause image and gets it from
a registry, or from here.`,
		Example: `  holdfast export-image pause | ctr --namespace k8s.io images import -
  holdfast export-image demo demo.tar`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return errors.New("name one image, pause or demo, and a file if it is to go to one")
			}
			return nil
		},
		ValidArgs: []string{"pause", "demo"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && args[1] != "-" {
				return exportFile(args[0], args[1])
			}
			out := cmd.OutOrStdout()
			if isTerminal(out) {
				return errors.New("an archive is nothing for a terminal: name a file")
			}
			return node.ExportImage(out, args[0])
		},
	}
}

func exportFile(name, path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("write %s: %w", path, pathErr.Err) // not the name that it has meanwhile
	}
	if err != nil {
		return err
	}
	err = errors.Join(node.ExportImage(f, name), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
