package podrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// A paper is a writer that may be read meanwhile.
type paper struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *paper) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func podOf(containers ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c})
	}
	return pod
}

// write appends lines to the log of a run, as a runtime does.
func write(t *testing.T, dir string, pod *v1.Pod, container string, run int, lines ...string) {
	t.Helper()
	path := filepath.Join(podfiles.LogFolder(dir, pod.Namespace, pod.Name, pod.UID), podfiles.LogPath(container, int32(run)))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		fmt.Fprintf(f, "2026-01-02T03:04:05.000000006Z stdout %s\n", line)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func follow(l *logs) func() error {
	done := make(chan error, 1)
	go func() { done <- l.run(context.Background()) }()
	return func() error { return <-done }
}

func TestLogsOfAFastContainerAreWhole(t *testing.T) {
	dir, pod, out := t.TempDir(), podOf("app"), &paper{}
	var want []string
	for i := range 1000 {
		want = append(want, fmt.Sprintf("line %d", i))
	}
	for _, line := range want {
		write(t, dir, pod, "app", 0, "F "+line)
	}
	l := newLogs(dir, pod, out)
	l.finish() // before anybody looked
	if err := follow(l)(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(out.String(), strings.Join(want, "\n")+"\n"); diff != "" {
		t.Error(diff)
	}
}

func TestLogsFollowRestarts(t *testing.T) {
	dir, pod, out := t.TempDir(), podOf("app"), &paper{}
	l := newLogs(dir, pod, out)
	wait := follow(l)
	write(t, dir, pod, "app", 0, "F first", "P begun and ", "F ended")
	pod.Status.ContainerStatuses = []v1.ContainerStatus{ended("app", 1, "Error", 1)}
	l.see(pod)
	write(t, dir, pod, "app", 1, "F second")
	write(t, dir, pod, "app", 2, "P no end of line")
	pod.Status.ContainerStatuses[0].RestartCount = 2
	l.see(pod)
	l.finish()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(out.String(), "first\nbegun and ended\nsecond\nno end of line\n"); diff != "" {
		t.Error(diff)
	}
}

func TestLogsOfSeveralContainersDoNotMix(t *testing.T) {
	dir, pod, out := t.TempDir(), podOf("a", "b"), &paper{}
	l := newLogs(dir, pod, out)
	wait := follow(l)
	for i := range 50 {
		write(t, dir, pod, "a", 0, "P a", fmt.Sprintf("F %d", i))
		write(t, dir, pod, "b", 0, "P b", fmt.Sprintf("F %d", i))
	}
	l.finish()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for line := range strings.Lines(out.String()) {
		var n int
		c := line[1:2]
		if _, err := fmt.Sscanf(line, "["+c+"] "+c+"%d\n", &n); err != nil || n != got[c] {
			t.Fatalf("line %q is not number %d of its container: %v", line, got[c], err)
		}
		got[c]++
	}
	if diff := cmp.Diff(got, map[string]int{"a": 50, "b": 50}); diff != "" {
		t.Error(diff)
	}
}

var errBroken = errors.New("broken pipe")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestNobodyReadsTheLogs(t *testing.T) {
	dir, pod := t.TempDir(), podOf("a", "b")
	write(t, dir, pod, "a", 0, "F text")
	l := newLogs(dir, pod, broken{})
	wait := follow(l)
	pod.Status.ContainerStatuses = []v1.ContainerStatus{ended("a", 0, "", 1)}
	l.see(pod)
	if err := wait(); !errors.Is(err, errBroken) { // though b goes on
		t.Errorf("got %v, want %v", err, errBroken)
	}
}
