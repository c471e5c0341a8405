package logging_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/holdfast-dev/holdfast/internal/logging"
)

func TestBodiesAreNeverLogged(t *testing.T) {
	var out strings.Builder
	logging.New(&out, slog.LevelDebug)
	klog.Background().V(2).Info("decision")
	klog.Background().V(8).Info("Request Body", "body", "token")
	klog.Flush()
	if got := out.String(); !strings.Contains(got, "decision") || strings.Contains(got, "token") {
		t.Errorf("got %q, want the decision and not the body", got)
	}
}

func TestKlogComesOutByTheSameDoor(t *testing.T) {
	var out strings.Builder
	log := logging.New(&out, slog.LevelInfo)
	log.Info("ours")
	klog.InfoS("chatter")
	klog.ErrorS(nil, "trouble", "pod", "default/web")
	klog.Flush()

	got := out.String()
	for _, want := range []string{"msg=ours", "msg=trouble", "pod=default/web", "from=library"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "chatter") {
		t.Errorf("a library's information is shown at info level:\n%s", got)
	}
}

// TestLastWords ends a process as a library does, in a process of its own.
func TestLastWords(t *testing.T) {
	if os.Getenv("LAST_WORDS") != "" {
		logging.New(os.Stdout, slog.LevelInfo)
		klog.Fatalf("PostStartHook %q failed", "x")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLastWords$")
	cmd.Env = append(os.Environ(), "LAST_WORDS=1")
	out, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != 255 {
		t.Errorf("exit code %d (%v), want klog's 255", code, err)
	}
	if want := `level=ERROR msg="a library ends the process" exitCode=255 said="PostStartHook \"x\" failed"`; !strings.Contains(string(out), want) {
		t.Errorf("no %s in:\n%s", want, out)
	}
}

func TestJSON(t *testing.T) {
	var out strings.Builder
	logging.NewJSON(&out, slog.LevelInfo).Info("ours", "pod", "default/web")
	klog.ErrorS(nil, "trouble")
	klog.Flush()
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	for _, want := range []string{`"msg":"ours","pod":"default/web"`, `"msg":"trouble"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in:\n%s", want, out.String())
		}
	}
}
