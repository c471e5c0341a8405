package server

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// logTree is a folder of the machine's logs with what may be in one, beside a
// file that is nobody's business.
func logTree(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	logs := filepath.Join(top, "log")
	for path, content := range map[string]string{
		"secret": "secret", "log/syslog": "lines", "log/pods/a/0.log": "of a pod", "log/index.html": "page",
	} {
		file := filepath.Join(top, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"inside": "pods/a/0.log", "absolute": filepath.Join(logs, "pods/a/0.log"),
		"up": "../secret", "out": filepath.Join(top, "secret"), "chain": "out", "folder": top, "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(logs, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(logs, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return logs
}

func TestSystemLogs(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.SystemLogs = logTree(t) })
	tests := []struct {
		path string
		code int
		body string
	}{
		{"/logs/syslog", 200, "lines"},
		{"/logs/pods/a/0.log", 200, "of a pod"},
		{"/logs/inside", 200, "of a pod"},
		{"/logs/absolute", 200, "of a pod"},
		{"/logs/none", 404, ""},
		{"/logs/up", 404, ""},
		{"/logs/out", 404, ""},
		{"/logs/chain", 404, ""},
		{"/logs/folder/secret", 404, ""},
		{"/logs/loop", 404, ""},
		{"/logs/pipe", 404, ""}, // and does not wait for a writer
		{"/logs/%2e%2e/secret", 404, ""},
		{"/logs/..%2fsecret", 404, ""},
		{"/logs/pods/..%2f..%2fsecret", 404, ""},
		{"/logs/%00", 404, ""},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			code, body := r.get(tt.path)
			if tt.code == 404 && code >= 400 && !strings.Contains(body, "secret\n") && body != "secret" {
				return // how it is refused does not matter
			}
			if code != tt.code || body != tt.body {
				t.Errorf("GET %s = %d %q, want %d %q", tt.path, code, body, tt.code, tt.body)
			}
		})
	}
}

func TestSystemLogFolders(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.SystemLogs = logTree(t) })
	if code, body := r.get("/logs/pods/"); code != http.StatusOK || !strings.Contains(body, `<a href="a/">a/</a>`) {
		t.Errorf("GET /logs/pods/ = %d %q, want a list of what is in it", code, body)
	}
	gone := newRig(t, func(cfg *Config) { cfg.SystemLogs = filepath.Join(t.TempDir(), "none") })
	if code, _ := gone.get("/logs/"); code != http.StatusInternalServerError {
		t.Errorf("GET /logs/ without a folder = %d, want 500", code)
	}
}

// FuzzSystemLogs checks that no path opens what is outside the folder.
func FuzzSystemLogs(f *testing.F) {
	for _, seed := range []string{"syslog", "up", "out", "../secret", "folder/secret", "pods/../../secret", "inside", "loop", "", ".", "/etc/passwd", "pipe"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		root, err := os.OpenRoot(logTree(t))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = root.Close() }()
		file, err := logFolder{root}.Open(name)
		if err != nil {
			return
		}
		defer func() { _ = file.Close() }()
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if secret, err := os.Stat(filepath.Join(root.Name(), "../secret")); err != nil || os.SameFile(info, secret) {
			t.Errorf("%q opened the file outside: %v", name, err)
		}
	})
}
