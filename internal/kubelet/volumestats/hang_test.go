package volumestats

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumeplugin"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/hangingfs"
)

// counted counts the calls of the real measurer.
type counted struct {
	measurer
	mu    sync.Mutex // guards the field below
	calls map[string]int
}

func (c *counted) Measure(ctx context.Context, path string) (podvolumes.Usage, error) {
	c.mu.Lock()
	c.calls[path]++
	c.mu.Unlock()
	return c.measurer.Measure(ctx, path)
}

func (c *counted) count(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[path]
}

// folders are the volumes of every pod, by name.
type folders map[string]string

func (f folders) Paths(types.UID) map[string]string { return f }

// TestRealHang has a real filesystem stop answering: its volume keeps its figures, stale,
// with one try under way, and neither another volume nor the end waits for it.
func TestRealHang(t *testing.T) {
	testenv.Need(t, "root")
	dir := t.TempDir()
	paths := folders{"bad": filepath.Join(dir, "bad"), "good": filepath.Join(dir, "good")}
	for _, path := range paths {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fs := hangingfs.Mount(t, paths["bad"])
	p := pod("u", "bad", "good")
	disk := &counted{measurer: volumeplugin.New(volumeplugin.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)}), calls: map[string]int{}}
	a, stop := run(t, Config{
		Pods: func() []*v1.Pod { return []*v1.Pod{p} }, Paths: paths, Measurer: disk,
		Period: 100 * time.Millisecond, Deadline: 50 * time.Millisecond, Parallel: 1, Log: slog.New(slog.DiscardHandler),
	})
	eventually := func(what string, ok func(bad, good *podvolumes.Measured) bool) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for {
			known := map[string]*podvolumes.Measured{}
			for _, m := range a.Volumes(p) {
				known[m.Name] = &m
			}
			if ok(known["bad"], known["good"]) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("not within a minute: %s: %+v", what, known)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	isFresh := func(bad, good *podvolumes.Measured) bool {
		return bad != nil && !bad.Stale && *bad.CapacityBytes == hangingfs.Size && bad.Method == podvolumes.ByFilesystem && good != nil && !good.Stale
	}
	eventually("both have figures", isFresh)
	for range 2 {
		fs.Hang()
		fs.AwaitAsked(t)
		eventually("one is stale", func(bad, good *podvolumes.Measured) bool {
			return bad != nil && bad.Stale && *bad.CapacityBytes == hangingfs.Size && good != nil
		})
		tries, others := disk.count(paths["bad"]), disk.count(paths["good"])
		eventually("the other is measured, and the old figures go", func(bad, good *podvolumes.Measured) bool {
			return bad == nil && good != nil && !good.Stale && disk.count(paths["good"]) > others+5
		})
		if n := disk.count(paths["bad"]); n != tries {
			t.Errorf("%d more tries of what hangs", n-tries)
		}
		fs.Answer()
		eventually("both have figures again", isFresh)
	}
	fs.Hang()
	fs.AwaitAsked(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop()
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the end waits for what hangs")
		fs.Answer()
		<-ended
	}
	fs.Answer()
}
