package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/logging"
	"github.com/holdfast-dev/holdfast/internal/node"
)

func newDown(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the node's pods, then the node",
		Long: `Stops every pod, giving each its grace period, then the node and its private
container runtime. Nothing is deleted: "holdfast up" starts the same pods again.

(SIGTERM to "holdfast up" stops the node alone: its pods go on.)`,
		Example: "  holdfast down\n  holdfast down --root-dir /srv/node",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := g.open()
			if err == nil {
				err = cli.NeedRoot(cmd)
			}
			if err != nil {
				return err
			}
			step := func(s string) { fmt.Fprintln(cmd.OutOrStdout(), s) }
			if err := stopNode(cmd.Context(), in, step); err != nil {
				return err
			}
			step("The node is down.")
			return nil
		},
	}
}

// stopNode stops an instance's pods and then the instance: the process that
// runs it does, or, where there is none, this one. It waits for a process that
// has the instance and does not listen.
func stopNode(ctx context.Context, in *instance.Instance, step func(string)) error {
	for told := false; ; told = true {
		err := control.NewClient(in.ControlSocket()).Down(ctx, step)
		if errors.Is(err, control.ErrNotRunning) {
			// What libraries log is for the log of a node; here the steps and errors tell all.
			logging.New(io.Discard, slog.LevelError)
			err = node.Down(ctx, in, step)
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, instance.ErrRunning) {
			return fmt.Errorf("stop the node in %s: %w", in.Root, err)
		}
		if pid, running := in.Running(); running && !told {
			step(fmt.Sprintf("waiting for process %s, which starts or stops the node", pid))
		}
		select { // that process answers soon, or ends: another "holdfast down", for example
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
