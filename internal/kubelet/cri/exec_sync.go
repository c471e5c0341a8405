package cri

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync runs a command in a container and returns what it wrote and its
// exit code; a code other than 0 is no error. The runtime ends the command
// after timeout, counted in whole seconds, rounded up, and the error is then
// context.DeadlineExceeded; 0 or less means no limit but ctx's.
func (r *Runtime) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	seconds := int64(max(0, timeout+time.Second-1) / time.Second)
	if timeout <= 0 {
		seconds = 0
	} else {
		// The runtime's own limit should come first: it kills the command.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout+r.timeout)
		defer cancel()
	}
	got, err := r.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: seconds})
	if err != nil {
		return nil, nil, 0, fmt.Errorf("run %q in container %q: %w", cmd, id, translate(err))
	}
	return got.GetStdout(), got.GetStderr(), got.GetExitCode(), nil
}
