package logfile

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openLog(t *testing.T) *os.File {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(t.TempDir(), "holdfast.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return log
}

func write(t *testing.T, log *os.File, text string) {
	t.Helper()
	if _, err := log.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := openLog(t)
		path := log.Name()
		write(t, log, "12345") // by an earlier process
		runtest.Start(t, New(Config{Path: path, File: log, MaxSize: 4, Log: slog.New(slog.DiscardHandler)}).Run)
		for _, step := range []struct {
			what       string
			do         func()
			now, older string
		}{
			{"at the start", func() {}, "", "12345"},
			{"small", func() { write(t, log, "6789") }, "6789", "12345"},
			{"too large", func() { write(t, log, "a") }, "", "6789a"},
			{"the next", func() { write(t, log, "bc") }, "bc", "6789a"},
			{"somebody removed it", func() {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				write(t, log, "lost")
			}, "", "6789a"},
			{"and it goes on", func() { write(t, log, "d") }, "d", "6789a"},
			{"somebody put another in its place", func() {
				if err := os.Rename(path, path+".old"); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte("new:"), 0o640); err != nil {
					t.Fatal(err)
				}
			}, "new:", "6789a"},
			{"where it goes on, too", func() { write(t, log, "") }, "new:", "6789a"},
		} {
			step.do()
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if now, older := read(t, path), read(t, path+".1"); now != step.now || older != step.older {
				t.Errorf("%s: got %q and %q, want %q and %q", step.what, now, older, step.now, step.older)
			}
		}
	})
}

// TestNothingIsLost has several goroutines write while the file is replaced.
func TestNothingIsLost(t *testing.T) {
	log := openLog(t)
	b := New(Config{Path: log.Name(), File: log, MaxSize: 1})
	var writers sync.WaitGroup
	const each = 500
	for i := range 4 {
		writers.Go(func() {
			for k := range each {
				fmt.Fprintf(log, "%d-%d\n", i, k)
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for running, turn := true, 0; running; turn++ {
		select {
		case <-done:
			running = false
		default:
		}
		if err := b.look(); err != nil {
			t.Fatal(err)
		}
		// Kept, as the next one takes its place. None is there if the log was empty.
		if err := os.Rename(log.Name()+".1", fmt.Sprintf("%s.part%d", log.Name(), turn)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	parts, err := filepath.Glob(log.Name() + "*")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, part := range parts {
		lines += strings.Count(read(t, part), "\n")
	}
	if lines != 4*each {
		t.Errorf("%d lines, want %d", lines, 4*each)
	}
}
