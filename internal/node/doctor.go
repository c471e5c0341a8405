package node

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/doctor"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

// Examine looks at the machine for the node described by cfg, which must be
// complete. The node may run already.
func Examine(ctx context.Context, cfg Config) []doctor.Finding {
	c := doctor.Config{
		Root: cfg.RootDir, Endpoint: cfg.ContainerRuntimeEndpoint, Programs: runtimehost.Programs(),
		APIPort: *cfg.APIPort, KubeletPort: *cfg.KubeletPort,
	}
	c.RuntimeDir, c.RuntimeErr = runtimehost.FindRuntimeDir()
	if in, err := instance.Open(cfg.RootDir); err == nil {
		// A node that does not answer, or does not run, owns no port.
		if r, err := control.NewClient(in.ControlSocket()).Report(ctx); err == nil {
			c.NodePID = r.PID
		}
	}
	return doctor.Examine(ctx, c, time.Now())
}
