package runtimehost

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// watchHealth asks containerd whether it answers, until ctx ends. It returns
// errHung once containerd has not answered for hungLimit.
func (h *Host) watchHealth(ctx context.Context) error {
	conn, err := h.connect()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing was written
	tick := time.NewTicker(h.healthPeriod)
	defer tick.Stop()
	answered, well := time.Now(), true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		asked := time.Now()
		err := answers(ctx, conn, h.answerTimeout)
		silent := time.Since(answered).Round(time.Second)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if !well {
				h.cfg.Log.Info("the container runtime answers again", "wait", silent)
				h.cfg.Down("")
			}
			answered, well = asked, true
		case silent >= h.hungLimit:
			return fmt.Errorf("%w since %s, although it runs: %w", errHung, answered.UTC().Format(time.RFC3339), err)
		case well:
			h.cfg.Log.Warn("the container runtime does not answer", "err", err)
			h.cfg.Down(fmt.Sprintf("it does not answer since %s; it is killed and started again after %s, which pods survive",
				answered.UTC().Format(time.RFC3339), h.hungLimit))
			well = false
		}
	}
}

// answers asks for the runtime's status, which it gives without looking at the
// disk. Any answer is one.
func answers(ctx context.Context, conn *grpc.ClientConn, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := runtimeapi.NewRuntimeServiceClient(conn).Status(ctx, &runtimeapi.StatusRequest{}, grpc.WaitForReady(true))
	if ctx.Err() == nil {
		return nil //nolint:nilerr // a refusal is an answer
	}
	return err
}

// noRoom says which disk of containerd's is full, or nothing: its log, which
// would say it, could not be written either.
func (c Config) noRoom() string {
	for _, dir := range []string{c.containerdDir(), c.RunDir, filepath.Dir(c.logFile())} {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			continue
		}
		switch {
		case int64(st.Bavail)*st.Bsize < tight:
			return fmt.Sprintf("; there is no space left in %s", dir)
		case st.Files > 0 && st.Ffree == 0:
			return fmt.Sprintf("; there are no inodes left in %s", dir)
		}
	}
	return ""
}
