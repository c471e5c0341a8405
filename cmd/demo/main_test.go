package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCommands(t *testing.T) {
	t.Setenv("DEMO_TEST", "here")
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	for _, tc := range []struct {
		name, args, want string
		code             int
	}{
		{"echo", "echo a b", "a b\n", 0},
		{"echo keeps flags", "echo --help", "--help\n", 0},
		{"write", "write " + file + " text", "", 0},
		{"cat", "cat " + file, "text\n", 0},
		{"ls folder", "ls " + dir, "5 file\n", 0},
		{"ls file", "ls " + file, "5 " + file + "\n", 0},
		{"env", "env DEMO_TEST", "here\n", 0},
		{"env of all", "env", "DEMO_TEST=here\n", 0},
		{"env missing", "env DEMO_NONE", "", 1},
		{"mounts", "mounts", " / ", 0},
		{"exit", "exit 7", "", 7},
		{"exit zero", "exit 0", "", 0},
		{"exit too large", "exit 256", "", 2},
		{"burn disk", "burn disk " + file + " 3Mi", "wrote 3145728 of 3145728 bytes", 0},
		{"burn disk no room", "burn disk /dev/full 1Mi", "wrote 0 of", 1},
		{"burn memory", "burn memory 5M 0", "holding 5000000 bytes\n", 0},
		{"burn cpu", "burn cpu 1ms", "", 0},
		{"burn nothing", "burn", "", 2},
		{"burn what", "burn money", "", 2},
		{"sleep", "sleep 0.001", "", 0},
		{"sleep what", "sleep long", "", 2},
		{"cat missing", "cat " + file + "-none", "", 1},
		{"help", "--help", "demo burn cpu", 0},
		{"help of a command", "sleep --help", "demo burn cpu", 0},
		{"none", "", "", 2},
		{"unknown", "dance", "", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, said bytes.Buffer
			err := run(t.Context(), strings.Fields(tc.args), &out)
			if code := exitCode(err, &said); code != tc.code {
				t.Errorf("exit code: got %d, want %d (%v)", code, tc.code, err)
			}
			if !strings.Contains(out.String(), tc.want) {
				t.Errorf("output: got %q, want %q in it", out.String(), tc.want)
			}
			if tc.code == 2 && !strings.Contains(said.String(), "demo --help") {
				t.Errorf("message %q does not say where help is", said.String())
			}
		})
	}
}

func TestBurnDiskIsNotSparse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := run(t.Context(), []string{"burn", "disk", file, "1Mi"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) != 1<<20 || bytes.Count(data, []byte{0}) > len(data)/100 {
		t.Errorf("got %d bytes, %d of them zero", len(data), bytes.Count(data, []byte{0}))
	}
}

func TestWaitersStopAtOnce(t *testing.T) {
	for _, args := range []string{"sleep forever", "pause", "burn cpu", "burn memory 1k", "serve --addr 127.0.0.1:0"} {
		t.Run(args, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // what SIGTERM does
			if err := run(ctx, strings.Fields(args), io.Discard); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

func TestServeAddr(t *testing.T) {
	for _, tc := range []struct{ name, args, port, want string }{
		{"default", "", "", ":8080"},
		{"variable", "", "99", ":99"},
		{"flag wins", "--addr 127.0.0.1:1", "99", "127.0.0.1:1"},
		{"unknown", "--port 1", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := serveAddr(strings.Fields(tc.args), tc.port)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestHandler(t *testing.T) {
	t.Setenv("POD_NAME", "web-1")
	for path, want := range map[string]string{"/healthz": "ok\n", "/a/b": "hello from web-1\n"} {
		w := httptest.NewRecorder()
		handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%s: got %d %q, want %q", path, w.Code, w.Body.String(), want)
		}
	}
}

func TestGet(t *testing.T) {
	server := httptest.NewServer(handler())
	defer server.Close()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"get", server.URL + "/healthz"}, &out); err != nil || out.String() != "ok\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	for _, url := range []string{gone.URL, "http://127.0.0.1:0/", "nonsense"} {
		if err := run(t.Context(), []string{"get", url}, io.Discard); err == nil {
			t.Errorf("%s: no error", url)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"30": 30 * time.Second, "1.5": 1500 * time.Millisecond, "10m": 10 * time.Minute, "-1s": -1, "": -1, "NaN": -1,
	} {
		got, err := parseDuration(in)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: got %v, want %v", in, got, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "4096": 4096, "64Mi": 64 << 20, "1G": 1e9, "2k": 2000, "1Gi": 1 << 30,
		"-1": -1, "": -1, "Mi": -1, "99999999999Gi": -1,
	} {
		got, err := parseSize(in)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: got %d, want %d", in, got, want)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	f.Add("64Mi")
	f.Add("-1k")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSize(s); err == nil && n < 0 {
			t.Errorf("%q: got %d", s, n)
		}
	})
}
