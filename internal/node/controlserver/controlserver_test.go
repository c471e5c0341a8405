package controlserver_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/node/controlserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server until the test ends and returns a client for it.
func start(t *testing.T, cfg controlserver.Config) *control.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- controlserver.New(cfg).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	for {
		if info, err := os.Stat(cfg.Socket); err == nil && info.Mode().Perm() == 0o600 {
			return control.NewClient(cfg.Socket)
		}
	}
}

func TestReport(t *testing.T) {
	client := start(t, controlserver.Config{
		Socket: filepath.Join(t.TempDir(), "run", "control.sock"),
		Report: func(context.Context) control.Report { return control.Report{Node: "edge-1", Ready: true} },
	})
	got, err := client.Report(t.Context())
	if err != nil || got.Node != "edge-1" || !got.Ready {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestStoreIsWholeOrAnError(t *testing.T) {
	for name, test := range map[string]struct {
		sent string
		err  error
	}{
		"whole":       {"store", nil},
		"not there":   {"", errors.New("no store yet")},
		"half of one": {"sto", errors.New("disk error")},
	} {
		t.Run(name, func(t *testing.T) {
			client := start(t, controlserver.Config{
				Socket: filepath.Join(t.TempDir(), "control.sock"),
				Store: func(w io.Writer) error {
					_, err := io.WriteString(w, test.sent)
					return errors.Join(err, test.err)
				},
			})
			var got strings.Builder
			err := client.Store(t.Context(), &got)
			if (err == nil) != (test.err == nil) || err == nil && got.String() != test.sent {
				t.Errorf("got %q, %v", got.String(), err)
			}
		})
	}
}

func TestDownTellsEachStep(t *testing.T) {
	for name, want := range map[string]error{"done": nil, "failed": errors.New("pod default/web does not stop")} {
		t.Run(name, func(t *testing.T) {
			client := start(t, controlserver.Config{
				Socket: filepath.Join(t.TempDir(), "control.sock"),
				Down: func(_ context.Context, step func(string)) error {
					step("stop pods")
					step("stop containerd")
					return want
				},
			})
			var steps []string
			err := client.Down(t.Context(), func(s string) { steps = append(steps, s) })
			if (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
				t.Errorf("got %v, want %v", err, want)
			}
			if want := []string{"stop pods", "stop containerd"}; !slices.Equal(steps, want) {
				t.Errorf("steps %q, want %q", steps, want)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	_, err := control.NewClient(filepath.Join(t.TempDir(), "none.sock")).Report(t.Context())
	if !errors.Is(err, control.ErrNotRunning) {
		t.Errorf("got %v, want ErrNotRunning", err)
	}
}
