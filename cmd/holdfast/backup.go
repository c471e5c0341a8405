package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/node"
)

func newBackup(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "backup [FILE]",
		Short: "Write the node's objects, keys, manifests and settings to a file",
		Long: `Writes one archive with what nobody can make again: the API's objects, keys and
certificates, the manifests, the settings and the node's identity. The node may
run meanwhile, or be stopped. Images, containers, logs and the contents of
volumes are not in it.

The file has mode 0600: who reads it owns the node. FILE may be a folder; by
default it is the current one, and the name says which node and when.`,
		Example: "  holdfast backup\n  holdfast backup /mnt/usb/node.tar.gz\n  holdfast backup --root-dir /srv/node /mnt/usb",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := g.open()
			if err == nil {
				err = cli.NeedRoot(cmd)
			}
			if err != nil {
				return err
			}
			file, err := backupFile(in, args, time.Now())
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			notes, err := node.Backup(cmd.Context(), in, file, func(s string) { fmt.Fprintln(out, s) })
			if err != nil {
				return fmt.Errorf("back up the node in %s: %w", in.Root, err)
			}
			for _, note := range notes {
				fmt.Fprintln(out, "Left out: "+note)
			}
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "The backup is whole: %s, %.1f MiB. It holds keys and Secrets: keep it as safe as the node.\n", file, float64(info.Size())/(1<<20))
			return nil
		},
	}
}

// backupFile returns where the backup goes.
func backupFile(in *instance.Instance, args []string, now time.Time) (string, error) {
	path := "."
	if len(args) == 1 {
		path = args[0]
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		path = filepath.Join(path, fmt.Sprintf("holdfast-%s-%s.tar.gz", in.ID, now.UTC().Format("20060102T150405Z")))
	case err == nil && !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is no file: name a file or a folder", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	return filepath.Abs(path)
}
