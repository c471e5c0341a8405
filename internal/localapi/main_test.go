package localapi

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/logging"
)

// childDir makes the test binary be a server in that folder, for the tests
// that kill one or measure one.
const childDir = "HOLDFAST_TEST_SERVE_IN"

// testLog is one for all tests: libraries log by it too, some of them after
// the test that woke them.
var testLog *slog.Logger

func TestMain(m *testing.M) {
	testLog = logging.New(os.Stderr, slog.LevelWarn)
	if dir := os.Getenv(childDir); dir != "" {
		if err := serveIn(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveIn runs a server in dir until SIGTERM, and says on stdout when it is
// ready.
func serveIn(dir string) error {
	level := slog.LevelWarn
	if os.Getenv("HOLDFAST_TEST_DEBUG") != "" {
		level = slog.LevelDebug
	}
	s, err := New(testConfig(dir, logging.New(os.Stderr, level)))
	if err != nil {
		return err
	}
	kubeconfig, err := s.AdminKubeconfig()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "admin.kubeconfig"), kubeconfig, 0o600); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		<-s.Ready()
		fmt.Println("ready")
	}()
	return s.Run(ctx)
}

func testConfig(dir string, log *slog.Logger) Config {
	return Config{
		DataDir: filepath.Join(dir, "etcd"), PKIDir: filepath.Join(dir, "pki"), RunDir: filepath.Join(dir, "run"),
		Listen: []string{"127.0.0.1:0"}, NodeName: "node1", Log: log,
	}
}
