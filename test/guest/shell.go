package guest

import (
	"context"
	"os/exec"

	"github.com/holdfast-dev/holdfast/test/guest/wire"
)

// Shell boots the machine with its console on the terminal that this program
// runs in, and returns when the machine has ended.
func (m *Machine) Shell(ctx context.Context, attach func(*exec.Cmd)) error {
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(m.arguments(),
		"-append", m.parameters("quiet "+wire.Shell), "-serial", "mon:stdio")...)
	attach(cmd)
	return cmd.Run()
}
