package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

// runtimeEnv holds a runtimeConfig and makes the test binary a machine's runtime.
const runtimeEnv = "HOLDFAST_TEST_CLUSTER_RUNTIME"

// A runtimeConfig says what the process that has a machine's containerd is to do.
type runtimeConfig struct {
	Root, RuntimeDir string
	// Remove has everything of the runtime removed, in place of running it.
	Remove bool
}

func TestMain(m *testing.M) {
	if text := os.Getenv(runtimeEnv); text != "" {
		if err := runRuntime(context.Background(), text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// runRuntime keeps a machine's containerd running until the standard input ends,
// with whoever started this process.
func runRuntime(ctx context.Context, text string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	var cfg runtimeConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	in, err := instance.Open(cfg.Root)
	if err != nil {
		return err
	}
	host := runtimehost.New(runtimehost.Config{
		RootDir: in.Root, RunDir: in.Run(), InstanceID: in.ID, RuntimeDir: cfg.RuntimeDir,
		Bridge: in.Bridge(), Subnet: in.Subnet, CgroupParent: in.CgroupParent(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if cfg.Remove {
		notes, err := host.Remove(ctx)
		for _, note := range notes {
			fmt.Fprintln(os.Stderr, note)
		}
		return err
	}
	go func() { // ends with this process
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return host.Run(ctx)
}
