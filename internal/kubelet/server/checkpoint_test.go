package server

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeCheckpoints remembers what was asked for.
type fakeCheckpoints struct {
	mu      sync.Mutex
	err     error
	id      string
	file    string
	timeout time.Duration
}

func (f *fakeCheckpoints) CheckpointContainer(_ context.Context, id, file string, timeout time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.id, f.file, f.timeout = id, file, timeout
	return f.err
}

func (f *fakeCheckpoints) asked() (id, file string, timeout time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id, f.file, f.timeout
}

func TestCheckpoint(t *testing.T) {
	fake := &fakeCheckpoints{}
	r := newRig(t, func(cfg *Config) {
		cfg.Checkpoints, cfg.CheckpointDir = fake, filepath.Join(t.TempDir(), "checkpoints")
	})
	post := func(path string) (int, string) {
		code, _, body := r.do(r.client(), http.MethodPost, r.url+path, "admin-token")
		return code, strings.TrimSpace(body)
	}
	code, body := post("/checkpoint/default/web/app?timeout=5&timeout=90")
	id, file, timeout := fake.asked()
	if code != 200 || body != `{"items":["`+file+`"]}` {
		t.Errorf("POST = %d %q, want the name %s", code, body, file)
	}
	if id != "c2" || timeout != 90*time.Second {
		t.Errorf("asked for %s within %s, want c2 within 1m30s", id, timeout)
	}
	if dir, name := filepath.Split(file); filepath.Clean(dir) != r.cfg.CheckpointDir || !strings.HasPrefix(name, "checkpoint-web_default-app-") {
		t.Errorf("file = %q", file)
	}
	if info, err := os.Stat(r.cfg.CheckpointDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder of checkpoints: %v, %v, want mode 0700", info, err)
	}
	for path, want := range map[string]string{
		"/checkpoint/default/web/app?timeout=x":  "404 cannot parse value of timeout parameter",
		"/checkpoint/default/web/app?timeout=-1": "404 cannot parse value of timeout parameter",
		"/checkpoint/default/none/app":           `404 pod "none" does not exist`,
		"/checkpoint/default/web/none":           `404 container "none" not found in pod "web"`,
		"/checkpoint/default/web/side":           `404 container not found ("side")`, // it does not run
	} {
		if code, body := post(path); gotten(code, body) != want {
			t.Errorf("POST %s = %q, want %q", path, gotten(code, body), want)
		}
	}
}

func TestCheckpointRefused(t *testing.T) {
	r := newRig(t, func(cfg *Config) {
		cfg.Checkpoints, cfg.CheckpointDir = &fakeCheckpoints{err: errors.New("the container runtime cannot checkpoint containers")}, t.TempDir()
	})
	code, _, body := r.do(r.client(), http.MethodPost, r.url+"/checkpoint/default/web/app", "admin-token")
	want := "500 checkpointing of default/web/app failed (the container runtime cannot checkpoint containers)"
	if got := gotten(code, strings.TrimSpace(body)); got != want {
		t.Errorf("POST = %q, want %q", got, want)
	}
}

func FuzzCheckpointTimeout(f *testing.F) {
	for _, seed := range []string{"0", "90", "-1", "9223372036854775807", "1e3", "", "0x10"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, given string) {
		got, err := checkpointTimeout([]string{given})
		if got < 0 || got > maxCheckpoint || err != nil && got != 0 {
			t.Errorf("checkpointTimeout(%q) = %s, %v, want 0 to %s", given, got, err, maxCheckpoint)
		}
	})
}
