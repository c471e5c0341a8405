package logging_test

import (
	"log/slog"
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
