package hoststats

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestResolver(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	r := &Resolver{log: slog.New(slog.NewTextHandler(&log, nil)), plain: filepath.Join(dir, "resolv.conf"), resolved: filepath.Join(dir, "resolved.conf")}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(servers, searches string) {
		t.Helper()
		if got := r.DNS(); strings.Join(got.Servers, " ") != servers || strings.Join(got.Searches, " ") != searches {
			t.Errorf("got %+v, want servers %q, searches %q", got, servers, searches)
		}
	}
	want("", "") // none yet
	write(r.plain, "nameserver 192.0.2.1\nsearch example.org\n")
	want("192.0.2.1", "example.org")
	write(r.resolved, "nameserver 192.0.2.9\nsearch stale.example\n")
	want("192.0.2.1", "example.org") // not the stub's: left over
	write(r.plain, "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch example.org\n")
	want("192.0.2.9", "stale.example")
	write(r.resolved, "nameserver 192.0.2.10\n") // another lease
	want("192.0.2.10", "")

	if err := os.Remove(r.resolved); err != nil {
		t.Fatal(err)
	}
	want("127.0.0.53", "example.org") // nothing better is known

	// What is no file cannot be read, and is told once.
	if err := os.Mkdir(r.resolved, 0o700); err != nil {
		t.Fatal(err)
	}
	want("127.0.0.53", "example.org")
	want("127.0.0.53", "example.org")
	if n := strings.Count(log.String(), "cannot be read"); n != 1 {
		t.Errorf("told %d times:\n%s", n, &log)
	}
}
